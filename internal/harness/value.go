package harness

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// object is a JSON object of an event as a CEL value. To an expression it is a
// map, with one difference, which real triggers need: reading an optional
// object that the event does not have gives null, while has() of it is false.
//
//	event.state.change_proposal != null    false without a change proposal
//	has(event.state.change_proposal)       false without a change proposal
//	event.transition.comment.command       an error without a command
//
// A plain CEL map cannot do that: it answers both questions through the same
// method. So object is deliberately no traits.Mapper; it is a traits.Indexer
// (asked to read) and a traits.FieldTester (asked by has). Members that are not
// objects, and names that the schema does not know, stay errors when read:
// that makes a trigger false and lets the reason name the missing path.
//
// What is read from an absent object is an error as well, and so is has() of it
// (the environment is told so), as with a plain map: were it false,
// !has(event.transition.comment.command) would be true for every event that is
// no comment.
type object struct {
	path    string
	shape   *shape
	members map[string]ref.Val
}

func newObject(path string, s *shape, members map[string]any) *object {
	o := &object{path: path, shape: s, members: make(map[string]ref.Val, len(members))}
	for name, m := range members {
		var sub *shape
		if s != nil {
			sub = s.members[name]
		}
		o.members[name] = newValue(path+"."+name, sub, m)
	}
	return o
}

// newValue makes a CEL value of decoded JSON. Whole numbers are of type int.
func newValue(path string, s *shape, v any) ref.Val {
	switch v := v.(type) {
	case map[string]any:
		return newObject(path, s, v)
	case []any:
		list := make([]ref.Val, len(v))
		for i, e := range v {
			list[i] = newValue(path, nil, e)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list)
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return types.Int(i)
		}
		f, err := v.Float64()
		if err != nil {
			return types.WrapErr(err)
		}
		return types.Double(f)
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

// Get reads a member.
func (o *object) Get(index ref.Val) ref.Val {
	name, ok := index.(types.String)
	if !ok {
		return types.NewErr("%s has names for keys, not values of type %s", o.path, index.Type().TypeName())
	}
	if v, ok := o.members[string(name)]; ok {
		return v
	}
	if o.shape.optionalObject(string(name)) {
		return types.NullValue
	}
	return missing(o.path + "." + string(name))
}

// IsSet answers has().
func (o *object) IsSet(field ref.Val) ref.Val { return o.Contains(field) }

// Contains answers in.
func (o *object) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.False
	}
	_, ok = o.members[string(name)]
	return types.Bool(ok)
}

// Size answers size().
func (o *object) Size() ref.Val { return types.Int(len(o.members)) }

// Iterator gives the names in order.
func (o *object) Iterator() traits.Iterator {
	names := make([]string, 0, len(o.members))
	for name := range o.members {
		names = append(names, name)
	}
	slices.Sort(names)
	return types.NewStringList(types.DefaultTypeAdapter, names).Iterator()
}

// Equal is true for the same object of the same event only.
func (o *object) Equal(other ref.Val) ref.Val {
	p, ok := other.(*object)
	return types.Bool(ok && p == o)
}

// Type is map.
func (o *object) Type() ref.Type { return types.MapType }

// Value returns the members.
func (o *object) Value() any { return o.members }

// ConvertToType knows only what every value must.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("%s cannot become a %s", o.path, t.TypeName())
}

// ConvertToNative is not needed: events do not come out of expressions.
func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s cannot become a %s", o.path, t)
}

// lacks returns the part of a path that the object does not have, "" where it
// has all of it.
func (o *object) lacks(path []string) string {
	for i, name := range path {
		v, ok := o.members[name]
		if !ok {
			return o.path + "." + name
		}
		sub, isObject := v.(*object)
		if !isObject || i == len(path)-1 {
			return ""
		}
		o = sub
	}
	return ""
}

// missingError names what an event does not have.
type missingError struct{ path string }

func (e *missingError) Error() string { return e.path + " is not in this event" }

func missing(path string) ref.Val { return types.WrapErr(&missingError{path: path}) }
