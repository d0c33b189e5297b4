package harness

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// eventPath returns the member names of an expression like event.a.b or
// event["a"].b.
func eventPath(e ast.Expr) (path []string, ok bool) {
	var operand ast.Expr
	var name string
	switch kind := e.Kind(); {
	case kind == ast.IdentKind:
		return nil, strings.TrimPrefix(e.AsIdent(), ".") == "event"
	case kind == ast.SelectKind:
		operand, name = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case kind == ast.CallKind && e.AsCall().FunctionName() == operators.Index && len(e.AsCall().Args()) == 2:
		index := e.AsCall().Args()[1]
		if index.Kind() != ast.LiteralKind {
			return nil, false
		}
		key, isName := index.AsLiteral().(types.String)
		if !isName {
			return nil, false
		}
		operand, name = e.AsCall().Args()[0], string(key)
	default:
		return nil, false
	}
	path, ok = eventPath(operand)
	return append(path, name), ok
}

// unknownPaths warns of members that the schema does not know: such a trigger
// compiles and is never true.
func (c *compiler) unknownPaths(f *file, a *ast.AST) []Problem {
	var out []Problem
	check := func(e ast.Expr, path []string) {
		if len(path) == 0 || c.shape.find(path) != nil {
			return
		}
		name := "event." + strings.Join(path, ".")
		at := a.SourceInfo().GetStartLocation(e.ID())
		p := Problem{
			Source: f.loc.String(), Line: f.lineOf(at.Line(), at.Column()), Warning: true,
			What: fmt.Sprintf("the trigger reads %s, which no event has", brief(name)),
			Cure: fmt.Sprintf("did you mean %s?", c.shape.nearest(name)),
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	walkPaths(a.Expr(), false, check)
	return out
}

// walkPaths calls check for every longest path that begins with event; shadowed
// means that event is the variable of a macro here.
func walkPaths(e ast.Expr, shadowed bool, check func(ast.Expr, []string)) {
	if !shadowed {
		if path, ok := eventPath(e); ok {
			check(e, path)
			return
		}
	}
	each := func(shadowed bool, es ...ast.Expr) {
		for _, sub := range es {
			walkPaths(sub, shadowed, check)
		}
	}
	switch e.Kind() {
	case ast.SelectKind:
		each(shadowed, e.AsSelect().Operand())
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			each(shadowed, e.AsCall().Target())
		}
		each(shadowed, e.AsCall().Args()...)
	case ast.ListKind:
		each(shadowed, e.AsList().Elements()...)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			each(shadowed, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, entry := range e.AsStruct().Fields() {
			each(shadowed, entry.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		l := e.AsComprehension()
		inner := shadowed || l.IterVar() == "event" || l.IterVar2() == "event"
		each(shadowed, l.IterRange(), l.AccuInit())
		each(inner, l.LoopCondition(), l.LoopStep(), l.Result())
	case ast.UnspecifiedExprKind, ast.IdentKind, ast.LiteralKind:
	}
}
