"""The rules. Each takes a Tree and gives a list of Violations; RULES at the end names them all."""

import os
import re

from arrows import (
    ARROWS,
    COLUMNS_MAX,
    DEVICE_SAFE,
    HOST_FORMAT,
    FILE_BYTES_MAX,
    FILE_LINES_MAX,
    FUNCTION_LINES_MAX,
    LARGE_FILES,
    QUOTED_TEXT,
)
from source import Violation, functions, is_code

INCLUDE = re.compile(r'^\s*#\s*include\s+"packstone/([^"]+)"', re.M)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def is_test(path):
    return path.endswith(("_test.cc", "_bench.cc")) or not path.startswith("src/") or "/pch" in path


def allowed(lines, line, rule):
    """A line, or the one above it, may carry `tidy: allow RULE: reason`."""
    pattern = re.compile(rf"tidy: allow {re.escape(rule)}: \S+")
    return any(pattern.search(lines[i]) for i in (line - 1, line - 2) if 0 <= i < len(lines))


def include_arrows(tree):
    """A room includes only the rooms of its row in the table."""
    found = []
    for path in tree.cpp("src/packstone/"):
        room = path.split("/")[2]
        for match in INCLUDE.finditer(tree.text(path)):
            target = match.group(1).split("/")[0]
            line = line_of(tree.text(path), match.start(1))
            if room not in ARROWS or target not in ARROWS:
                unknown = room if room not in ARROWS else target
                found.append(
                    Violation(
                        path,
                        line,
                        f"unknown room {unknown}; add it to ARROWS in "
                        "tools/tidy and to ARCHITECTURE.md",
                    )
                )
            elif target != room and target not in ARROWS[room]:
                found.append(
                    Violation(
                        path,
                        line,
                        f"arrow {room} -> {target} is not in the table; move "
                        "the code or ask for a new arrow in ARCHITECTURE.md",
                    )
                )
    return found


def include_targets_exist(tree):
    """Every included header of the house is there."""
    found, paths = [], set(tree.paths)
    for path in tree.cpp():
        for match in INCLUDE.finditer(tree.text(path)):
            if f"src/packstone/{match.group(1)}" not in paths:
                found.append(
                    Violation(
                        path,
                        line_of(tree.text(path), match.start(1)),
                        f"no header packstone/{match.group(1)}",
                    )
                )
    return found


def format_headers(tree):
    return [
        p
        for p in tree.headers("src/packstone/format/")
        if re.search(r"static\s+constexpr\s+std::string_view\s+kName\b", tree.clean(p))
    ]


def device_safe_headers(tree):
    """A device-safe header includes only device-safe headers, none that allocates or throws."""
    banned = re.compile(
        r"^\s*#\s*include\s+<(string|vector|map|memory|expected|functional|iostream|fmt/[^>]*"
        r"|nlohmann/[^>]*|stdexcept|thread|mutex|span|optional)>",
        re.M,
    )
    shared = [
        p for p in tree.headers("src/packstone/format/") if os.path.basename(p) not in HOST_FORMAT
    ]
    safe = {*DEVICE_SAFE, *shared}
    found = []
    for path in sorted(safe & set(tree.paths)):
        text = tree.text(path)
        for match in INCLUDE.finditer(text):
            if f"src/packstone/{match.group(1)}" not in safe:
                found.append(
                    Violation(
                        path,
                        line_of(text, match.start(1)),
                        f"device-safe header includes packstone/{match.group(1)}, which is not",
                    )
                )
        for match in banned.finditer(text):
            found.append(
                Violation(
                    path,
                    line_of(text, match.start(1)),
                    f"device-safe header includes <{match.group(1)}>, which allocates or throws",
                )
            )
    return found


def format_registry(tree):
    """Every format header is in format/registry.h and has a vector file of its producer."""
    registry = "src/packstone/format/registry.h"
    if registry not in tree.paths:
        return []
    found, text = [], tree.text(registry)
    for path in format_headers(tree):
        name = os.path.basename(path)
        if f'"packstone/format/{name}"' not in text:
            found.append(
                Violation(
                    path,
                    1,
                    f"format header is not in {registry}; add its include and its list entry",
                )
            )
        stem = name.removesuffix(".h")
        if stem == "dense":  # the value of a float pattern needs no producer's word
            continue
        if not any(
            os.path.basename(p).startswith(stem)
            for p in tree.paths
            if p.startswith("tests/vectors/format/")
        ):
            found.append(
                Violation(path, 1, f"format without a vector file tests/vectors/format/{stem}*")
            )
    return found


def model_registry(tree):
    """Every architecture file is named in model/registry.h."""
    files = [p for p in tree.paths if re.match(r"src/packstone/model/arch/[^/]+(?<!_test)\.cc$", p)]
    registry = "src/packstone/model/registry.h"
    if not files:
        return []
    if registry not in tree.paths:
        return [Violation(files[0], 1, f"{registry} is missing; it lists the architectures")]
    text = tree.text(registry)
    return [
        Violation(p, 1, f"architecture is not in {registry}; add one line")
        for p in files
        if not re.search(rf"\b{re.escape(os.path.basename(p).removesuffix('.cc'))}", text)
    ]


def columns(tree):
    """Lines of code have at most 100 columns."""
    found = []
    for path in tree.code():
        if path.endswith((".inc",)) and not path.startswith("src/"):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if len(line) > COLUMNS_MAX and not allowed(tree.lines(path), number, "columns"):
                found.append(Violation(path, number, f"{len(line)} columns, at most {COLUMNS_MAX}"))
    return found


def function_length(tree):
    """Functions have at most 70 lines, or the file says why not: `tidy: long function: reason`."""
    found = []
    for path in tree.cpp():
        if re.search(r"tidy: long function: \S+", tree.text(path)):
            continue
        for function in functions(tree.clean(path)):
            length = function.end - function.start + 1
            if length > FUNCTION_LINES_MAX:
                found.append(
                    Violation(
                        path,
                        function.start,
                        f"{function.name} has {length} lines, at most {FUNCTION_LINES_MAX}; "
                        "split it, or "
                        "give the file a comment `tidy: long function: reason`",
                    )
                )
    return found


def file_length(tree):
    """Code files have at most 800 lines, or say why not: `tidy: long file: reason`."""
    found = []
    for path in tree.code():
        length = len(tree.lines(path))
        if length > FILE_LINES_MAX and not re.search(r"tidy: long file: \S+", tree.text(path)):
            found.append(
                Violation(
                    path,
                    1,
                    f"{length} lines, at most {FILE_LINES_MAX}; split it, or give it a "
                    "comment `tidy: long file: reason`",
                )
            )
    return found


def library(path):
    return (
        path.startswith("src/packstone/")
        and not path.startswith("src/packstone/cli/")
        and not is_test(path)
    )


def source_code(path):
    return path.startswith("src/packstone/") and not is_test(path)


def threads_banned(path):
    return source_code(path) and path.split("/")[2] not in ("base", "cli")


def not_check(path):
    return library(path) and path != "src/packstone/base/check.cc"


# (name, pattern on cleaned text, which files, what to use instead)
BANNED = [
    (
        "exit",
        r"(?<![\w.>:])(?:std::)?_?(?:abort|quick_exit|exit|_Exit|terminate)\s*\(",
        not_check,
        "return an error with fail(); PACKSTONE_ASSERT for programmer errors",
    ),
    (
        "print",
        r"(?<![\w.>])(?:std::)?(?:v?f?printf|puts|fputs|putchar|perror)\s*\("
        r"|\bstd::c(?:out|err|log)\b"
        r"|\bfmt::print\b",
        not_check,
        "return a value or an error; only cli prints",
    ),
    (
        "parse",
        r"\b(?:std::sto(?:i|l|ll|ul|ull|f|d|ld)|atoi|atol|atoll|atof)\s*\(",
        source_code,
        "std::from_chars with its whole-input check",
    ),
    (
        "sprintf",
        r"\b(?:v?sprintf|strcpy|strcat|gets)\s*\(",
        source_code,
        "fmt::format or fmt::format_to",
    ),
    ("strtok", r"\bstrtok(?:_r)?\s*\(", source_code, "std::string_view::find and substr"),
    (
        "rand",
        r"(?<![\w.>:])(?:std::)?s?rand\s*\(|\bstd::random_device\b",
        source_code,
        "a seeded generator that is handed in",
    ),
    (
        "thread",
        r"\bstd::(?:thread|jthread|async)\b",
        threads_banned,
        "the ThreadPool that is handed in (base/thread_pool.h)",
    ),
    ("throw", r"(?<![\w])throw\b(?!\s*\()", source_code, "return an error with fail()"),
    (
        "new",
        r"(?<![\w:])new\s+(?:\(|[A-Za-z_:])",
        source_code,
        "std::make_unique, std::make_shared or a container",
    ),
    (
        "delete",
        r"(?<!=)(?<!= )\bdelete\b(?:\s*\[\s*\])?\s+?[A-Za-z_*(]",
        source_code,
        "an owner: std::unique_ptr or a container",
    ),
    (
        "malloc",
        r"(?<![\w.>:])(?:std::)?(?:malloc|calloc|realloc|alloca)\s*\(",
        source_code,
        "std::vector, or std::unique_ptr with std::aligned_alloc in base",
    ),
    ("goto", r"\bgoto\b", source_code, "a function with early returns"),
    (
        "fast-math",
        r"-ffast-math|\bfast-math\b|__FAST_MATH__",
        source_code,
        "plain flags; the same input gives the same bits",
    ),
]


# A class with a private constructor: its object goes into an owner in the same expression.
OWNED_AT_ONCE = re.compile(r"\b(?:unique|shared)_ptr<[^;{}()]*>\s*\w*\(\s*\Z")


def banned_calls(tree):
    """Calls that have a better way here."""
    found = []
    for path in tree.cpp("src/packstone/"):
        text, lines = tree.clean(path), tree.lines(path)
        for name, pattern, applies, instead in BANNED:
            if not applies(path):
                continue
            for match in re.finditer(pattern, text):
                line = line_of(text, match.start())
                if name == "new" and OWNED_AT_ONCE.search(text, 0, match.start()):
                    continue
                if not allowed(lines, line, name):
                    found.append(
                        Violation(
                            path,
                            line,
                            f"`{match.group(0).strip()}` is not used here; use {instead}",
                        )
                    )
    return found


# Put together from parts, so that this file does not match itself.
REMINDERS = re.compile(
    r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b"
    r"|\bfor" + r" now\b|\bcoming" + r" soon\b"
)


def reminders(tree):
    """No leftover reminders."""
    found = []
    for path in tree.code() + [p for p in tree.paths if p.endswith(".md")]:
        for number, line in enumerate(tree.lines(path), 1):
            if (match := REMINDERS.search(line)) and not allowed(
                tree.lines(path), number, "reminders"
            ):
                found.append(
                    Violation(
                        path,
                        number,
                        f"leftover reminder `{match.group(0)}`; do it or say it in an issue",
                    )
                )
    return found


def ascii_only(tree):
    """Source is ASCII; text in other scripts is written with escapes."""
    found = []
    for path in tree.code():
        for number, line in enumerate(tree.lines(path), 1):
            if not line.isascii():
                position = next(i for i, c in enumerate(line) if ord(c) > 127)
                found.append(
                    Violation(
                        path,
                        number,
                        f"U+{ord(line[position]):04X} in column {position + 1}; "
                        "source is ASCII, use an escape",
                    )
                )
    return found


def file_size(tree):
    """No file over 1 MB but those of LARGE_FILES."""
    found = []
    for path in tree.paths:
        limit = LARGE_FILES.get(path, FILE_BYTES_MAX)
        if tree.size(path) > limit:
            message = f"{tree.size(path):,} bytes, at most {limit:,}; make it with a script"
            found.append(Violation(path, 1, message))
    return found


MACHINE = re.compile(r"(?<![\w.$}])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me)/[\w.]")
HOSTS = re.compile(
    r"\b(?:py"
    + r"pi\.org|files\.python"
    + r"hosted\.org|deb\.deb"
    + r"ian\.org|security\.deb"
    + r"ian\.org|registry\.np"
    + r"mjs\.org|proxy\.gol"
    + r"ang\.org|crat"
    + r"es\.io)\b"
)


def machine_paths(tree):
    """No paths of one machine, no host names of package registries; not in text of others."""
    found = []
    for path in tree.paths:
        if path in QUOTED_TEXT:
            continue
        if not (is_code(path) or path.endswith((".md", ".json", ".txt", ".toml", ".yml"))):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if match := MACHINE.search(line):
                found.append(
                    Violation(
                        path,
                        number,
                        f"path of one machine `{match.group(0)}...`; use a relative path",
                    )
                )
            if match := HOSTS.search(line):
                found.append(
                    Violation(
                        path, number, f"registry host `{match.group(0)}`; name the package only"
                    )
                )
    return found


def pragma_once(tree):
    """Headers begin with a comment that says what they are, and have #pragma once."""
    found = []
    for path in tree.headers():
        text = tree.text(path)
        if not re.search(r"^#pragma once$", text, re.M):
            found.append(Violation(path, 1, "no #pragma once"))
        if not text.startswith("//"):
            found.append(Violation(path, 1, "no comment on top that says what the header is"))
    return found


DECLARATION = re.compile(
    r"^(?!\s|#|//|\}|using\b|namespace\b|struct\b|class\b|enum\b|union\b|static_assert\b"
    r"|extern \"C\""
    r"|template\b|friend\b|inline constexpr [\w:<>]+ k|constexpr [\w:<>]+ k|concept\b"
    r"|PACKSTONE_|requires\b)"
    r"[\w:<>,\s*&\[\]]+?\b(\w+|operator\S+)\s*\("
)


def docstrings(tree):
    """Functions that a header offers have a comment above them or above their block of lines.

    Functions of at most three lines say what they do by themselves."""
    found = []
    for path in tree.headers():
        clean, lines = tree.clean(path).split("\n"), tree.lines(path)
        ends = {f.start: f.end for f in functions(tree.clean(path))}
        in_detail = False
        for index, line in enumerate(clean):
            if re.match(r"namespace detail\b", line):
                in_detail = True
            elif in_detail and lines[index].startswith("}  // namespace"):
                in_detail = False
            match = DECLARATION.match(line)
            if not match or in_detail:
                continue
            first = index
            while first > 0 and lines[first - 1].strip():
                first -= 1
            if any("//" in lines[i] for i in range(first, index + 1)):
                continue
            start = index + 1
            while start > first + 1 and re.match(r"template\b|\[\[", clean[start - 2]):
                start -= 1
            end = ends.get(start, ends.get(index + 1))
            if end is not None and end - index <= 3:
                continue
            found.append(
                Violation(
                    path, index + 1, f"{match.group(1)} has no comment that says what it does"
                )
            )
    return found


def test_says_what(tree):
    """A test file says on top, in a comment, what it proves."""
    found = []
    for path in tree.paths:
        if path.endswith("_test.cc") and not tree.text(path).startswith("//"):
            found.append(Violation(path, 1, "no comment on top that says what these tests prove"))
        if path.endswith("_test.py") and not re.match(r"(?:#!.*\n)?(?:#|\"\"\")", tree.text(path)):
            found.append(Violation(path, 1, "no words on top that say what these tests prove"))
    return found


RULES = [
    include_arrows,
    include_targets_exist,
    device_safe_headers,
    format_registry,
    model_registry,
    columns,
    function_length,
    file_length,
    banned_calls,
    reminders,
    ascii_only,
    file_size,
    machine_paths,
    pragma_once,
    docstrings,
    test_says_what,
]
