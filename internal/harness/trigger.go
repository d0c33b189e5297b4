package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

const (
	// maxExpression is the longest trigger; the longest real one is under 1 KiB.
	maxExpression = 16 << 10
	// maxNesting bounds parentheses and the like, maxLoops macros inside macros.
	maxNesting = 64
	maxLoops   = 3
	// maxCost bounds one evaluation, in CEL's own units: a few milliseconds. A
	// search through an event's longest text costs about 400, a comparison of
	// each of 100 labels with each other about 50,000.
	maxCost = 100_000
	// checkEvery is how many steps of a loop pass between two looks at the
	// context.
	checkEvery = 64
	// maxParts is how many parts of a conjunction get a program of their own.
	maxParts = 32
)

// compiler makes triggers of expressions.
type compiler struct {
	env   *cel.Env
	shape *shape
}

func newCompiler(s *shape) (*compiler, error) {
	env, err := cel.NewEnv(
		cel.Variable("event", cel.MapType(cel.StringType, cel.DynType)),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ParserRecursionLimit(maxNesting),
		cel.EnableMacroCallTracking(),
		cel.EnableErrorOnBadPresenceTest(true),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateComprehensionNestingLimit(maxLoops)),
	)
	if err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	return &compiler{env: env, shape: s}, nil
}

// trigger is a compiled expression.
type trigger struct {
	whole part
	// parts are those of a conjunction, empty where there is one part only.
	// They are compiled when a reason is first asked for: most cycles are idle.
	parts func() []part
}

// part is an expression that can be evaluated, with its text.
type part struct {
	text    string
	program cel.Program
	// paths are the members of the event that it reads, in order.
	paths [][]string
}

// compile returns nil where the expression cannot be used; the problems may
// also be warnings.
func (c *compiler) compile(f *file) (*trigger, []Problem) {
	source := f.loc.String()
	fail := func(line int, what, cure string) (*trigger, []Problem) {
		return nil, []Problem{{Source: source, Line: line, What: what, Cure: cure}}
	}
	expr := f.trigger.value
	if len(expr) > maxExpression {
		return fail(f.trigger.line(), "the trigger is longer than 16 KiB", "split the harness")
	}
	checked, issues := c.env.Compile(expr)
	if issues.Err() != nil {
		return nil, c.issues(f, issues)
	}
	native := checked.NativeRep()
	if why := c.notBoolean(native, checked.OutputType()); why != "" {
		return fail(f.trigger.line(), why, "compare it with something: ==, !=, in, has()")
	}
	whole, err := c.part(expr, checked)
	if err != nil {
		return fail(f.trigger.line(), "the trigger cannot be compiled: "+brief(err.Error()), "")
	}
	return &trigger{whole: whole, parts: sync.OnceValue(func() []part { return c.parts(native) })}, c.unknownPaths(f, native)
}

func (c *compiler) part(text string, a *cel.Ast) (part, error) {
	p := part{text: brief(strings.Join(strings.Fields(text), " "))}
	var err error
	p.program, err = c.env.Program(a, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost), cel.InterruptCheckFrequency(checkEvery))
	walkPaths(a.NativeRep().Expr(), false, func(_ ast.Expr, path []string) { p.paths = append(p.paths, path) })
	return p, err
}

// issues makes problems of compile errors, at most three: the parser's later
// ones mostly follow from the first.
func (c *compiler) issues(f *file, issues *cel.Issues) []Problem {
	var out []Problem
	for _, e := range issues.Errors() {
		if len(out) == 3 {
			break
		}
		cure := "see the CEL examples in the README"
		if strings.Contains(e.Message, "undeclared reference") {
			cure = "the only variable of a trigger is event"
		}
		line := f.trigger.line()
		if e.Location != nil && e.Location.Line() > 0 {
			line = f.lineOf(e.Location.Line(), e.Location.Column())
		}
		out = append(out, Problem{Source: f.loc.String(), Line: line, What: "the trigger does not compile: " + brief(strings.Join(strings.Fields(e.Message), " ")), Cure: cure})
	}
	return out
}

// notBoolean says why an expression cannot be a trigger. Reading a member of
// the event has any type for CEL; the schema knows better.
func (c *compiler) notBoolean(a *ast.AST, out *cel.Type) string {
	kind := out.String()
	if out.IsExactType(cel.DynType) {
		kind = "bool"
		if path, ok := eventPath(a.Expr()); ok {
			if s := c.shape.find(path); s != nil && s.kind != "boolean" {
				kind = s.kind
			}
		}
	}
	if kind == "bool" {
		return ""
	}
	return "the trigger is not true or false, but of type " + kind
}

// parts splits a conjunction, so that a reason can say which part was false.
// It is a help for humans only: what cannot be taken apart stays whole.
func (c *compiler) parts(a *ast.AST) []part {
	var exprs []ast.Expr
	var walk func(e ast.Expr)
	walk = func(e ast.Expr) {
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalAnd {
			for _, arg := range e.AsCall().Args() {
				walk(arg)
			}
			return
		}
		exprs = append(exprs, e)
	}
	walk(a.Expr())
	if len(exprs) < 2 || len(exprs) > maxParts {
		return nil
	}
	var out []part
	for _, e := range exprs {
		text, err := cel.ExprToString(e, a.SourceInfo())
		if err != nil {
			return nil
		}
		checked, issues := c.env.Compile(text)
		if issues.Err() != nil {
			return nil
		}
		p, err := c.part(text, checked)
		if err != nil {
			return nil
		}
		out = append(out, p)
	}
	return out
}

// verdict is the outcome of one evaluation.
type verdict int

const (
	isFalse verdict = iota
	isTrue
	isError
	isInterrupted
)

// run evaluates an expression; why is empty for true and false.
func (p part) run(ctx context.Context, root *object) (v verdict, why string) {
	out, _, err := p.program.ContextEval(ctx, activation{root})
	var cancelled interpreter.EvalCancelledError
	var absent *missingError
	switch {
	case err != nil && ctx.Err() != nil:
		return isInterrupted, "the evaluation was interrupted"
	case errors.As(err, &cancelled):
		return isError, "the trigger is too expensive to evaluate on this event"
	case errors.As(err, &absent):
		return isError, absent.Error()
	case err != nil:
		return isError, p.explain(err, root)
	}
	switch b := out.(type) {
	case types.Bool:
		if b {
			return isTrue, ""
		}
		return isFalse, ""
	case ref.Val:
		return isError, fmt.Sprintf("the result is of type %s, not true or false", b.Type().TypeName())
	}
	return isError, "there is no result"
}

// explain gives the gist of an error of CEL. Its texts can quote values of the
// event (a pattern, a number), so only known ones are repeated. What is read
// from an absent object fails with the name of the member alone; the paths of
// the expression tell whose it is.
func (p part) explain(err error, root *object) string {
	msg := err.Error()
	if _, key, ok := strings.Cut(msg, "no such key: "); ok {
		for _, path := range p.paths {
			gone := root.lacks(path)
			if depth := strings.Count(gone, "."); gone != "" && depth < len(path) && path[depth] == key {
				return (&missingError{gone}).Error()
			}
		}
	}
	for _, known := range []string{
		"no such key", "no such overload", "index out of bounds", "no such attribute", "unsupported type conversion",
		"divide by zero", "modulus by zero", "integer overflow", "error parsing regexp",
	} {
		if strings.Contains(msg, known) {
			return "the evaluation failed: " + known
		}
	}
	return "the evaluation failed"
}

// decide evaluates the trigger and finds the reason.
func (t *trigger) decide(ctx context.Context, root *object) (v verdict, reason string) {
	v, why := t.whole.run(ctx, root)
	switch v {
	case isTrue:
		return v, "the trigger is true"
	case isInterrupted:
		return v, why
	case isFalse, isError:
	}
	for _, p := range t.parts() {
		pv, pwhy := p.run(ctx, root)
		if pv == isInterrupted {
			break
		}
		if pv == v && v == isFalse {
			return v, "false: " + p.text
		}
		if pv == v && pwhy == why {
			return v, "false: " + why + ", asked for by " + p.text
		}
	}
	if v == isError {
		return v, "false: " + why
	}
	return v, "the trigger is false"
}
