package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mutant is one small mistake in a place of a file.
type mutant struct {
	file, place string // with the line; and the line's text
	what        string
}

// name is without the line's number, which changes.
func (m mutant) name() string {
	return fmt.Sprintf("%s: %s: %s", strings.Split(m.file, ":")[0], m.place, m.what)
}

// rewriter puts all mutants of a file into its text. Each is behind a question for its number, so that one program has them all, and none is in
// force unless it is asked for.
type rewriter struct {
	fset *token.FileSet
	info *types.Info
	pkg  *types.Package
	text string
	name string

	mutants *[]mutant
	loops   []ast.Node // what break and continue at this place leave
}

// file returns the file with its mutants.
func (r *rewriter) file(f *ast.File) string {
	out, at := "", 0
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		start, end := r.offset(fn.Body.Pos()), r.offset(fn.Body.End())
		out += r.text[at:start] + r.rewrite(fn.Body)
		at = end
	}
	return out + r.text[at:]
}

func (r *rewriter) offset(p token.Pos) int { return r.fset.Position(p).Offset }

// rewrite returns the text of a node with the mutants in it.
func (r *rewriter) rewrite(n ast.Node) string {
	if out, ok := r.mutate(n); ok {
		return out
	}
	return r.inside(n)
}

// inside rewrites what a node consists of.
func (r *rewriter) inside(n ast.Node) string {
	if leaves(n) {
		r.loops = append(r.loops, n)
		defer func() { r.loops = r.loops[:len(r.loops)-1] }()
	}
	var parts []ast.Node
	ast.Inspect(n, func(c ast.Node) bool {
		if _, comment := c.(*ast.CommentGroup); c != nil && c != n && !comment { // which may end behind the node
			parts = append(parts, c)
		}
		return c == n
	})
	slices.SortStableFunc(parts, func(a, b ast.Node) int { return int(a.Pos() - b.Pos()) })
	out, at := "", r.offset(n.Pos())
	for _, p := range parts {
		if start := r.offset(p.Pos()); start >= at {
			out += r.text[at:start] + r.rewrite(p)
			at = r.offset(p.End())
		}
	}
	return out + r.text[at:r.offset(n.End())]
}

func leaves(n ast.Node) bool {
	switch n.(type) {
	case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt, *ast.FuncLit:
		return true
	}
	return false
}

// inLoop says that break and continue leave the same loop here.
func (r *rewriter) inLoop() bool {
	if len(r.loops) == 0 {
		return false
	}
	switch r.loops[len(r.loops)-1].(type) {
	case *ast.ForStmt, *ast.RangeStmt:
		return true
	}
	return false
}

// endless says that the innermost loop ends by a break alone: with its first one, what follows the loop would lack a return.
func (r *rewriter) endless() bool {
	if len(r.loops) == 0 {
		return false
	}
	f, ok := r.loops[len(r.loops)-1].(*ast.ForStmt)
	return ok && f.Cond == nil
}

// add notes a mutant and returns its number.
func (r *rewriter) add(at token.Pos, what string) int {
	p := r.fset.Position(at)
	line := strings.Split(r.text, "\n")[p.Line-1]
	*r.mutants = append(*r.mutants, mutant{file: fmt.Sprintf("%s:%d", r.name, p.Line), place: strings.TrimSpace(line), what: what})
	return len(*r.mutants)
}

var (
	opposite = map[token.Token]token.Token{token.LSS: token.GEQ, token.LEQ: token.GTR, token.GTR: token.LEQ, token.GEQ: token.LSS, token.EQL: token.NEQ, token.NEQ: token.EQL}
	boundary = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	reverse  = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL}
	assigned = map[token.Token]token.Token{token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN}
)

// mutate returns a node with mutants of its own; false: it has none.
func (r *rewriter) mutate(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.GenDecl:
		return r.text[r.offset(n.Pos()):r.offset(n.End())], n.Tok == token.CONST
	case *ast.BinaryExpr:
		return r.binary(n)
	case *ast.UnaryExpr:
		return r.unary(n)
	case *ast.IfStmt:
		return r.condition(n, n.Cond)
	case *ast.ForStmt:
		return r.condition(n, n.Cond)
	case *ast.CaseClause:
		return r.cases(n)
	case *ast.IncDecStmt:
		other := map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok]
		if r.inHead(n) {
			return "", false
		}
		return fmt.Sprintf("if mutantIs(%d) { %s%s } else { %s }", r.add(n.Pos(), n.Tok.String()+" to "+other), r.rewrite(n.X), other, r.inside(n)), true
	case *ast.AssignStmt:
		other, ok := assigned[n.Tok]
		if !ok || r.inHead(n) || !r.isNumber(n.Rhs[0]) {
			return "", false
		}
		x, y := r.rewrite(n.Lhs[0]), r.rewrite(n.Rhs[0])
		return fmt.Sprintf("if mutantIs(%d) { %s %s %s } else { %s %s %s }", r.add(n.Pos(), n.Tok.String()+" to "+other.String()), x, other, y, x, n.Tok, y), true
	case *ast.BranchStmt:
		if (n.Tok == token.BREAK || n.Tok == token.CONTINUE && !r.endless()) && n.Label == nil && r.inLoop() {
			other := map[token.Token]string{token.BREAK: "continue", token.CONTINUE: "break"}[n.Tok]
			return fmt.Sprintf("if mutantIs(%d) { %s }; %s", r.add(n.Pos(), n.Tok.String()+" to "+other), other, n.Tok), true
		}
	}
	return "", false
}

// inHead says that a statement is no statement of a block: it stands in the head of a switch.
func (r *rewriter) inHead(n ast.Node) bool {
	return slices.ContainsFunc(r.loops, func(l ast.Node) bool {
		s, ok := l.(*ast.SwitchStmt)
		return ok && s.Init == n
	})
}

func (r *rewriter) isNumber(e ast.Expr) bool {
	t := r.info.Types[e].Type
	if t == nil {
		return false
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsNumeric != 0
}

func (r *rewriter) isConstant(e ast.Expr) bool { return r.info.Types[e].Value != nil }

// isBool says that an expression is of the type bool itself.
func (r *rewriter) isBool(e ast.Expr) bool {
	t := r.info.Types[e].Type
	return t == types.Typ[types.Bool] || t == types.Typ[types.UntypedBool]
}

func (r *rewriter) binary(n *ast.BinaryExpr) (string, bool) {
	if r.isConstant(n) {
		return "", false
	}
	switch {
	case opposite[n.Op] != 0 && r.isBool(n):
		x, y, at := r.rewrite(n.X), r.rewrite(n.Y), n.OpPos
		ops := []token.Token{opposite[n.Op]}
		if b, ok := boundary[n.Op]; ok {
			ops = append(ops, b)
		}
		var alternatives, none []string
		for _, op := range ops {
			id := r.add(at, n.Op.String()+" to "+op.String())
			alternatives = append(alternatives, fmt.Sprintf("mutantIs(%d) && (%s %s %s)", id, x, op, y))
			none = append(none, fmt.Sprint(id))
		}
		return fmt.Sprintf("(%s || mutantNone(%s) && (%s %s %s))", strings.Join(alternatives, " || "), strings.Join(none, ", "), x, n.Op, y), true
	case (n.Op == token.LAND || n.Op == token.LOR) && r.isBool(n):
		name, other := "mutantAnd", "||"
		if n.Op == token.LOR {
			name, other = "mutantOr", "&&"
		}
		id := r.add(n.OpPos, n.Op.String()+" to "+other)
		return fmt.Sprintf("%s(%d, %s, func() bool { return %s })", name, id, r.operand(n.X), r.operand(n.Y)), true
	case reverse[n.Op] != 0 && r.isNumber(n):
		id := r.add(n.OpPos, n.Op.String()+" to "+reverse[n.Op].String())
		return fmt.Sprintf("mutantNumber[%s](%d, '%s', %s, %s)", r.typeName(n), id, n.Op, r.rewrite(n.X), r.rewrite(n.Y)), true
	}
	return "", false
}

// operand is one side of && or ||, or a condition: what is neither a comparison nor made of others may be false instead of true.
func (r *rewriter) operand(e ast.Expr) string {
	switch x := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		return r.rewrite(e)
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			if _, made := ast.Unparen(x.X).(*ast.BinaryExpr); made {
				return r.rewrite(e)
			}
		}
	}
	if !r.isBool(e) || r.isConstant(e) {
		return r.rewrite(e)
	}
	return fmt.Sprintf("mutantNot(%d, %s)", r.add(e.Pos(), "the opposite"), r.rewrite(e))
}

func (r *rewriter) condition(n ast.Node, cond ast.Expr) (string, bool) {
	if cond == nil {
		return "", false
	}
	if leaves(n) {
		r.loops = append(r.loops, n)
		defer func() { r.loops = r.loops[:len(r.loops)-1] }()
	}
	out, at := "", r.offset(n.Pos())
	then := func(text string, part ast.Node) {
		out += r.text[at:r.offset(part.Pos())] + text
		at = r.offset(part.End())
	}
	next := func(part ast.Node) { then(r.rewrite(part), part) }
	head := func(part ast.Node) { then(r.inside(part), part) } // where no statement may become several
	switch n := n.(type) {
	case *ast.IfStmt:
		if n.Init != nil {
			head(n.Init)
		}
		then(r.operand(cond), cond)
		next(n.Body)
		if n.Else != nil {
			next(n.Else)
		}
	case *ast.ForStmt:
		if n.Init != nil {
			head(n.Init)
		}
		then(r.operand(cond), cond)
		if n.Post != nil {
			head(n.Post)
		}
		next(n.Body)
	}
	return out, true
}

// cases are the conditions of a switch without a value.
func (r *rewriter) cases(n *ast.CaseClause) (string, bool) {
	if len(n.List) == 0 || !r.isBool(n.List[0]) {
		return "", false
	}
	out, at := "", r.offset(n.Pos())
	for _, e := range n.List {
		out += r.text[at:r.offset(e.Pos())] + r.operand(e)
		at = r.offset(e.End())
	}
	for _, s := range n.Body {
		out += r.text[at:r.offset(s.Pos())] + r.rewrite(s)
		at = r.offset(s.End())
	}
	return out + r.text[at:r.offset(n.End())], true
}

func (r *rewriter) unary(n *ast.UnaryExpr) (string, bool) {
	if n.Op != token.SUB || !r.isNumber(n) {
		return "", false
	}
	x := r.rewrite(n.X)
	if v := r.info.Types[n.X].Value; v != nil && constant.Sign(v) == 0 {
		return "", false
	}
	return fmt.Sprintf("mutantMinus[%s](%d, %s)", r.typeName(n), r.add(n.Pos(), "without -"), x), true
}

// typeName is how the file names the type of an expression.
func (r *rewriter) typeName(e ast.Expr) string {
	return types.TypeString(types.Default(r.info.Types[e].Type), func(p *types.Package) string {
		if p == r.pkg {
			return ""
		}
		return p.Name()
	})
}
