"""From the bytes of a file to plain text: markup, manual pages, Info files, what is kept."""

import gzip
import html
import re

DOCUMENT_BYTES_MIN = 400
LINE_MEAN_MAX = 200  # longer lines on average: data or minified code
LINE_MAX = 4000
PROSE_ASCII_MIN = 0.97
CODE_ASCII_MIN = 0.98
# English by its function words; tables, indexes and other languages have few of them.
FUNCTION_WORDS = frozenset(
    "the of and to a in is that for it as with on be are or this by an from not you if can "
    "which at will when have has was all but one use used".split()
)
FUNCTION_SHARE_MIN = 0.17

_DROP = re.compile(
    r"<!--.*?-->|<(script|style|head|nav|header|footer|svg|math|form|button)\b.*?</\1\s*>"
    r"|<\?.*?\?>|<!.*?>",
    re.S | re.I,
)
_PRE = re.compile(r"<(pre|programlisting|screen|listing)\b[^>]*>(.*?)</\1\s*>", re.S | re.I)
_BLOCK = re.compile(
    r"</?(p|div|br|hr|h[1-6]|li|ul|ol|dl|dt|dd|tr|table|section|article|blockquote|title|para"
    r"|listitem|item|terms|steps|list|note|page|body|main|aside|figure|figcaption|td|th)\b[^>]*>",
    re.I,
)
_HEADING = re.compile(r"<(p|h[1-6]|pre|div|section|title|blockquote|table|dt)\b[^>]*>", re.I)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_SPACE = re.compile(r"\s+")
_ROFF_ESCAPE = re.compile(
    r"\\f(?:\[[^\]]*\]|\(..|.)|\\s[+-]?\d+|\\[mMF]\[[^\]]*\]|\\[&|^/,%:)]|\\\*\[[^\]]*\]|\\\*\(?.."
)
_ROFF_CHARACTER = {
    r"\-": "-", r"\e": "\\", r"\(aq": "'", r"\(dq": '"', r"\(bu": "*", r"\(em": "--", r"\(en": "-",
    r"\(co": "(c)", r"\(cq": "'", r"\(oq": "'", r"\(lq": '"', r"\(rq": '"', r"\(ga": "`",
    r"\(ha": "^", r"\(ti": "~", r"\ ": " ", r"\~": " ", r"\'": "'", r"\`": "`",
}  # fmt: skip
_ROFF_TEXT = re.compile(
    r"^[.'][ \t]*(SH|SS|Sh|Ss|B|I|BR|RB|IR|RI|BI|IB|SM|SB|Nm|Nd|Fl|Ar|Pa|Xr|It|Dv|Va|Fn|Ft|Fa|Em|Sy"
    r"|Cm|Ev|Ic|Li|Dq|Sq|Pq|Ql|TP|IP|PP|P|Pp|LP|sp)\b[ \t]*(.*)$"
)
_NAVIGATION = re.compile(
    r"^[\s<>|\u00ab\u00bb]*(prev|previous|next|up|home|top|contents|index|previous topic|next topic"
    r"|this page|show source|quick search|navigation|table of contents|previous \| up \| next"
    r"|for more information|last update:)[\s<>|\u00ab\u00bb]*$",
    re.I | re.M,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WORD = re.compile(r"[A-Za-z']+")


def _inline(markup):
    lines = _BLOCK.sub("\n", _HEADING.sub("\n\n", markup)).split("\n")
    # A line break of the markup is a space; only block elements end a line.
    return "\n".join(_SPACE.sub(" ", html.unescape(_TAG.sub("", line))).strip() for line in lines)


def strip_markup(text):
    """HTML, XML, DocBook and Mallard without tags; <pre> and its like keep their white space."""
    text = _DROP.sub(" ", text.replace("\r\n", "\n"))
    parts, at = [], 0
    for match in _PRE.finditer(text):
        parts.append(_inline(_SPACE.sub(" ", text[at : match.start()])))
        parts.append("\n\n" + html.unescape(_TAG.sub("", match.group(2))).strip("\n") + "\n\n")
        at = match.end()
    parts.append(_inline(_SPACE.sub(" ", text[at:])))
    return "".join(parts)


def strip_roff(text):
    """A man or mdoc page without requests; headings and paragraphs stay lines of their own."""
    lines = []
    for line in text.split("\n"):
        if line.startswith(('.\\"', "'\\\"")):
            continue
        if line.startswith((".", "'")):
            match = _ROFF_TEXT.match(line)
            if match is None:
                continue
            request, rest = match.groups()
            rest = rest.replace('"', "")
            if request in ("SH", "SS", "Sh", "Ss"):
                line = "\n" + rest
            elif request in ("TP", "IP", "PP", "P", "Pp", "LP", "sp", "It"):
                line = "\n" + (rest if request in ("IP", "It") else "")
            elif request in ("BR", "RB", "IR", "RI", "BI", "IB"):
                line = rest.replace(" ", "")
            else:
                line = rest
        line = _ROFF_ESCAPE.sub("", line)
        for escape, character in _ROFF_CHARACTER.items():
            line = line.replace(escape, character)
        lines.append(line)
    return "\n".join(lines)


def strip_info(text):
    """An Info file without its node headers and tag tables."""
    nodes = [node for node in text.split("\x1f") if not node.lstrip().startswith("Tag Table")]
    return "\n\n".join(node.split("\n", 2)[-1] for node in nodes)


def plain_text(path, data):
    """The text of a file; None when it is not UTF-8 (of a dictionary: not ISO 8859-1 either)."""
    if path.endswith((".gz", ".dz")):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError):
            return None
        path = path[:-3]
    if b"\0" in data:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        if not path.endswith(".dict"):
            return None
        text = data.decode("iso8859-1")
    if re.search(r"\.info(-\d+)?$", path):
        text = strip_info(text)
    elif re.search(r"\.(x?html?(\.en)?|xml|page|docbook)$", path):
        text = _NAVIGATION.sub("", strip_markup(text))
    elif re.search(r"\.[1-8][a-z]*$", path) and "/man" in path:
        text = strip_roff(text)
    return clean(text)


def clean(text):
    """Line ends, control characters, trailing white space and runs of empty lines."""
    text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\u00a0", " "))
    text = text.replace("\u00b6", "")  # the mark of a heading's link
    lines = [line.rstrip() for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n") + "\n"


def keep(kind, text):
    """Whether a cleaned document is long enough, not data, and English where it is prose."""
    if len(text) < DOCUMENT_BYTES_MIN:
        return False
    lines = text.split("\n")
    if len(text) / len(lines) > (LINE_MEAN_MAX if kind == "code" else LINE_MAX):
        return False
    if max(map(len, lines)) > LINE_MAX and kind == "code":
        return False
    ascii_share = sum(map(str.isascii, text)) / len(text)
    if kind == "code":
        return ascii_share >= CODE_ASCII_MIN
    words = _WORD.findall(text)
    if ascii_share < PROSE_ASCII_MIN or len(words) < 30:
        return False
    return sum(word.lower() in FUNCTION_WORDS for word in words) / len(words) >= FUNCTION_SHARE_MIN
