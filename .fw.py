import ast,sys
def isd(n): return isinstance(n,ast.Expr) and isinstance(n.value,ast.Constant) and isinstance(n.value.value,str)
def w(n):
    l=list(ast.walk(n)); return len(l)-2*sum(map(isd,l))
for p in sys.argv[1:]:
    t=ast.parse(open(p).read())
    for n in t.body:
        if isinstance(n,(ast.ClassDef)):
            print(f"{w(n):5d} class {n.name}")
            for m in n.body: 
                if isinstance(m,(ast.FunctionDef,ast.AsyncFunctionDef)): print(f"{w(m):9d} {m.name}")
        elif isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef)): print(f"{w(n):5d} {n.name}")
    print(sum(w(n) for n in t.body if isinstance(n,(ast.Import,ast.ImportFrom,ast.Assign,ast.If))),'imports/consts')
