"""Reading the tree: which files belong to it, and C++ text without comments and strings."""

import os
import re
import subprocess
from dataclasses import dataclass, field

from arrows import CODE_SUFFIXES


@dataclass
class Violation:
    path: str
    line: int
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}"


@dataclass
class Tree:
    """The files of the project, by path relative to its root. Tests give `texts` instead."""

    root: str
    paths: list
    texts: dict = field(default_factory=dict)
    sizes: dict = field(default_factory=dict)
    cleaned: dict = field(default_factory=dict)

    def text(self, path):
        if path not in self.texts:
            with open(
                os.path.join(self.root, path), encoding="utf-8", errors="surrogateescape"
            ) as f:
                self.texts[path] = f.read()
        return self.texts[path]

    def lines(self, path):
        return self.text(path).split("\n")

    def size(self, path):
        if path in self.sizes:
            return self.sizes[path]
        if path in self.texts:
            return len(self.texts[path].encode("utf-8", errors="surrogateescape"))
        return os.path.getsize(os.path.join(self.root, path))

    def clean(self, path):
        """The C++ text with comments and strings as blanks; lines keep their numbers."""
        if path not in self.cleaned:
            self.cleaned[path] = clean_cpp(self.text(path))
        return self.cleaned[path]

    def code(self):
        """Hand-written files of any language."""
        return [p for p in self.paths if is_code(p)]

    def cpp(self, under=""):
        return [
            p
            for p in self.paths
            if p.startswith(under) and p.endswith((".h", ".cc", ".cu", ".inc"))
        ]

    def headers(self, under="src/packstone/"):
        return [p for p in self.paths if p.startswith(under) and p.endswith(".h")]


def is_code(path):
    name = os.path.basename(path)
    return path.endswith(CODE_SUFFIXES) or name in ("CMakeLists.txt", "run")


def tree_of(texts):
    """A tree that lives in memory, for the tests of the rules."""
    return Tree(root="", paths=sorted(texts), texts=dict(texts))


def read_tree(root):
    """The files git knows or would add; a plain walk where there is no git."""
    try:
        listing = (
            subprocess.run(
                ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                check=True,
                capture_output=True,
            )
            .stdout.decode()
            .split("\0")
        )
        paths = [p for p in listing if p and os.path.isfile(os.path.join(root, p))]
    except (OSError, subprocess.CalledProcessError):
        paths = []
        for folder, names, files in os.walk(root):
            names[:] = [n for n in names if n not in (".git", ".cache", "build", "__pycache__")]
            paths += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return Tree(root=root, paths=sorted(paths))


TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\s]*)\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'',
    re.S,
)


def blank(text):
    return "".join("\n" if c == "\n" else " " for c in text)


def clean_cpp(text):
    def replace(match):
        token = match.group(0)
        if token.startswith("/"):
            return blank(token)
        if token.startswith("R"):
            return '""' + blank(token[2:])
        return token[0] + blank(token[1:-1]) + token[-1]

    return TOKEN.sub(replace, text)


DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)


@dataclass
class Function:
    name: str
    start: int  # line of the signature, from 1
    end: int  # line of the closing brace


HEAD_NOT_FUNCTION = re.compile(
    r"^\s*(?:template\s*<.*>\s*)?(?:inline\s+)?"
    r"(?:namespace|class|struct|union|enum|extern\b(?!.*\())",
    re.S,
)


def is_function_head(head):
    """Whether the text before a brace, outside any function, opens a function body."""
    if "(" not in head or HEAD_NOT_FUNCTION.match(head.strip()):
        return False
    plain = head
    while (shorter := re.sub(r"\([^()]*\)", "", plain)) != plain:
        plain = shorter
    return "=" not in re.sub(r"operator\s*\S*=|requires[^;{]*|template\s*<[^;{]*?>", "", plain)


def functions(clean):
    """The function bodies of cleaned C++ text (a heuristic: enough for lengths and docstrings)."""
    clean = DIRECTIVE.sub(lambda match: blank(match.group(0)), clean)
    found, stack, head_start, inside = [], [], 0, 0
    for match in re.finditer(r"[{};]", clean):
        at, mark = match.start(), match.group(0)
        head = clean[head_start:at]
        in_parentheses = head.count("(") > head.count(")")
        if mark == "{":
            is_function = inside == 0 and not in_parentheses and is_function_head(head)
            stack.append((is_function, in_parentheses and not inside, head_start, head))
            inside += is_function
            if not inside and not in_parentheses:
                head_start = at + 1
        elif mark == "}":
            if stack:
                is_function, was_argument, start, head = stack.pop()
                if is_function:
                    inside -= 1
                    found.append(
                        Function(
                            name=function_name(head),
                            start=clean.count("\n", 0, start + len(head) - len(head.lstrip())) + 1,
                            end=clean.count("\n", 0, at) + 1,
                        )
                    )
                if was_argument:
                    continue
            if not inside:
                head_start = at + 1
        elif not inside and not in_parentheses:
            head_start = at + 1
    return found


def function_name(head):
    name = re.search(r"(operator\S+?|[~\w:]+)\s*\(", head)
    return name.group(1) if name else "?"
