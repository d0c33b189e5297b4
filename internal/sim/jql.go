package sim

import (
	"fmt"
	"strings"
	"unicode"
)

// jqlError is a refusal in Jira's words.
type jqlError struct{ text string }

func (e *jqlError) Error() string { return e.text }

func jqlErrorf(format string, args ...any) error {
	return &jqlError{"Error in the JQL Query: " + fmt.Sprintf(format, args...)}
}

// query is a parsed JQL text. Where is nil for a query without restriction.
type query struct {
	where jqlNode
	order []orderBy
}

type orderBy struct {
	field string
	desc  bool
}

// jqlNode is an expression: clause, jqlAnd, jqlOr or jqlNot.
type jqlNode interface{ isJQL() }

type (
	jqlAnd []jqlNode
	jqlOr  []jqlNode
	jqlNot struct{ node jqlNode }
	clause struct {
		field, op string // op is =, !=, <, <=, >, >=, ~, in, not in, is or is not
		values    []operand
	}
	// operand is a value as it was written.
	operand struct {
		text   string
		quoted bool
	}
)

func (jqlAnd) isJQL() {}
func (jqlOr) isJQL()  {}
func (jqlNot) isJQL() {}
func (clause) isJQL() {}

type tokenKind int

const (
	tokWord tokenKind = iota
	tokText
	tokOp
	tokEnd
)

type jqlToken struct {
	kind tokenKind
	text string
	at   int
}

// is reports whether the token is the unquoted word or the operator.
func (t jqlToken) is(text string) bool {
	return (t.kind == tokWord || t.kind == tokOp) && strings.EqualFold(t.text, text)
}

const (
	maxJQL   = 20000
	maxDepth = 100
	maxOrder = 7
)

// parseJQL reads the part of JQL that this site knows.
func parseJQL(text string) (query, error) {
	if len(text) > maxJQL {
		return query{}, jqlErrorf("The query is too long.")
	}
	tokens, err := lexJQL(text)
	if err != nil {
		return query{}, err
	}
	p := &jqlParser{tokens: tokens}
	var q query
	if !p.peek().is("order") && p.peek().kind != tokEnd {
		if q.where, err = p.or(0); err != nil {
			return query{}, err
		}
	}
	if q.order, err = p.orderBy(); err != nil {
		return query{}, err
	}
	if t := p.peek(); t.kind != tokEnd {
		return query{}, jqlErrorf("Expecting either 'OR' or 'AND' but got '%s'. (line 1, character %d)", t.text, t.at+1)
	}
	return q, nil
}

func lexJQL(text string) ([]jqlToken, error) {
	var tokens []jqlToken
	rs := []rune(text)
	for i := 0; i < len(rs); {
		r := rs[i]
		switch {
		case unicode.IsSpace(r):
			i++
		case r == '"' || r == '\'':
			value, next, ok := quoted(rs, i)
			if !ok {
				return nil, jqlErrorf("The quoted string '%s' has not been completed. (line 1, character %d)", value, i+1)
			}
			tokens = append(tokens, jqlToken{tokText, value, i})
			i = next
		case strings.ContainsRune("=!<>~(),&|", r):
			op := string(r)
			if i+1 < len(rs) {
				switch two := string(rs[i : i+2]); two {
				case "!=", "<=", ">=", "!~", "&&", "||":
					op = two
				}
			}
			tokens = append(tokens, jqlToken{tokOp, op, i})
			i += len(op)
		case strings.ContainsRune("{}*/%+^$#@?;`[]", r):
			return nil, jqlErrorf("The character '%c' is a reserved JQL character. You must enclose it in a string or use the escape '\\u%04x' instead. (line 1, character %d)", r, r, i+1)
		default:
			j := i
			for j < len(rs) && !unicode.IsSpace(rs[j]) && !strings.ContainsRune("\"'=!<>~(),&|{}*/%+^$#@?;`[]", rs[j]) {
				j++
			}
			tokens = append(tokens, jqlToken{tokWord, string(rs[i:j]), i})
			i = j
		}
	}
	return append(tokens, jqlToken{kind: tokEnd, at: len(rs)}), nil
}

// quoted reads the string that begins at rs[i]; next is after its end.
func quoted(rs []rune, i int) (value string, next int, ok bool) {
	var b strings.Builder
	for k := i + 1; k < len(rs); k++ {
		switch {
		case rs[k] == rs[i]:
			return b.String(), k + 1, true
		case rs[k] == '\\' && k+1 < len(rs):
			k++
			switch rs[k] {
			case 'n':
				b.WriteRune('\n')
			case 't':
				b.WriteRune('\t')
			case 'r':
				b.WriteRune('\r')
			default:
				b.WriteRune(rs[k])
			}
		default:
			b.WriteRune(rs[k])
		}
	}
	return b.String(), len(rs), false
}

type jqlParser struct {
	tokens []jqlToken
	pos    int
}

func (p *jqlParser) peek() jqlToken { return p.tokens[p.pos] }

func (p *jqlParser) next() jqlToken {
	t := p.tokens[p.pos]
	if t.kind != tokEnd {
		p.pos++
	}
	return t
}

func (p *jqlParser) accept(texts ...string) bool {
	for _, text := range texts {
		if p.peek().is(text) {
			p.next()
			return true
		}
	}
	return false
}

func (p *jqlParser) or(depth int) (jqlNode, error) {
	first, err := p.and(depth)
	if err != nil {
		return nil, err
	}
	nodes := jqlOr{first}
	for p.accept("or", "|", "||") {
		n, err := p.and(depth)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 1 {
		return first, nil
	}
	return nodes, nil
}

func (p *jqlParser) and(depth int) (jqlNode, error) {
	first, err := p.unary(depth)
	if err != nil {
		return nil, err
	}
	nodes := jqlAnd{first}
	for p.accept("and", "&", "&&") {
		n, err := p.unary(depth)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 1 {
		return first, nil
	}
	return nodes, nil
}

func (p *jqlParser) unary(depth int) (jqlNode, error) {
	if depth > maxDepth {
		return nil, jqlErrorf("The query is nested too deeply.")
	}
	if p.accept("not", "!") {
		n, err := p.unary(depth + 1)
		return jqlNot{n}, err
	}
	if p.accept("(") {
		n, err := p.or(depth + 1)
		if err != nil {
			return nil, err
		}
		if !p.accept(")") {
			return nil, p.expected("')'")
		}
		return n, nil
	}
	return p.clause()
}

func (p *jqlParser) clause() (jqlNode, error) {
	field, err := p.name("a field name")
	if err != nil {
		return nil, err
	}
	c := clause{field: strings.ToLower(field)}
	switch {
	case p.accept("in"):
		c.op = "in"
	case p.peek().is("not"):
		p.next()
		if !p.accept("in") {
			return nil, p.expected("'IN'")
		}
		c.op = "not in"
	case p.accept("is"):
		c.op = "is"
		if p.accept("not") {
			c.op = "is not"
		}
		if !p.accept("empty", "null") {
			return nil, p.expected("'EMPTY' or 'NULL'")
		}
		return c, nil
	default:
		t := p.next()
		switch t.text {
		case "=", "!=", "<", "<=", ">", ">=", "~", "!~":
			c.op = t.text
		default:
			p.pos = max(0, p.pos-1)
			if t.kind == tokEnd {
				p.pos = len(p.tokens) - 1
			}
			return nil, p.expected("operator but")
		}
	}
	if c.op == "in" || c.op == "not in" {
		c.values, err = p.list()
		return c, err
	}
	v, err := p.value()
	c.values = []operand{v}
	return c, err
}

func (p *jqlParser) list() ([]operand, error) {
	if !p.accept("(") {
		return nil, p.expected("'('")
	}
	var values []operand
	for {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		if p.accept(")") {
			return values, nil
		}
		if !p.accept(",") {
			return nil, p.expected("','")
		}
	}
}

// value reads an operand; word() is a function call without arguments.
func (p *jqlParser) value() (operand, error) {
	quoted := p.peek().kind == tokText
	text, err := p.name("a value, list or function")
	if err != nil {
		return operand{}, err
	}
	if !quoted && p.accept("(") {
		if !p.accept(")") {
			return operand{}, p.expected("')'")
		}
		text += "()"
	}
	return operand{text: text, quoted: quoted}, nil
}

// name reads a string or a word that is not reserved.
func (p *jqlParser) name(what string) (string, error) {
	t := p.peek()
	if t.kind == tokOp || t.kind == tokEnd {
		return "", p.expected(what)
	}
	if t.kind == tokWord && reservedJQL(t.text) {
		return "", jqlErrorf("'%s' is a reserved JQL word. You must surround it in quotation marks to use it in a query. (line 1, character %d)", t.text, t.at+1)
	}
	p.next()
	return t.text, nil
}

func (p *jqlParser) orderBy() ([]orderBy, error) {
	if !p.accept("order") {
		return nil, nil
	}
	if !p.accept("by") {
		return nil, p.expected("'BY'")
	}
	var order []orderBy
	for {
		field, err := p.name("a field name")
		if err != nil {
			return nil, err
		}
		o := orderBy{field: strings.ToLower(field)}
		if p.accept("desc") {
			o.desc = true
		} else {
			p.accept("asc")
		}
		order = append(order, o)
		if !p.accept(",") {
			break
		}
	}
	if len(order) > maxOrder {
		return nil, jqlErrorf("ORDER BY takes at most %d fields.", maxOrder)
	}
	return order, nil
}

func (p *jqlParser) expected(what string) error {
	t := p.peek()
	if t.kind == tokEnd {
		return jqlErrorf("Expecting %s before the end of the query.", what)
	}
	return jqlErrorf("Expecting %s but got '%s'. (line 1, character %d)", what, t.text, t.at+1)
}

// reservedWords may stand in a query only as what they mean, or quoted.
const reservedWords = ` abort access add after alias all alter and any are as asc at audit avg
 be before begin between boolean break but by byte catch cf char character check checkpoint collate
 collation column commit connect continue count create current date decimal declare decrement default
 defaults define delete delimiter desc difference distinct divide do double drop else empty encoding end
 equals escape exclusive exec execute exists explain false fetch file field first float for from function
 go goto grant greater group having identified if immediate in increment index initial inner inout input
 insert int integer intersect intersection into is isempty isnull join last left less like limit lock long
 max min minus mode modify modulo more multiply next noaudit not notin nowait null number object of on
 option or order outer output power previous prior privileges public raise raw remainder rename resource
 return returns revoke right row rowid rownum rows select session set share size sqrt start strict string
 subtract sum synonym table then to trans transaction trigger true uid union unique update user validate
 values view when whenever where while with `

func reservedJQL(word string) bool {
	for w := range strings.FieldsSeq(reservedWords) {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}
