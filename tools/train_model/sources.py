"""The Debian 12 packages of the corpus and which of their files are read.

A source takes the files of one package whose path matches `paths`, in the order of the SHA-256 of
their path, until `cap_mb` megabytes of cleaned text are there.
"""

from dataclasses import dataclass

# Files that hold prose by their name.
PROSE = (
    r"\.(x?html?|xml|page|docbook|txt|text|rst|pod|md|dict|info(-\d+)?|[1-8][a-z]*)(\.gz|\.dz)?$"
)
# Files that hold code by their name.
CODE = (
    r"\.(c|h|cc|cpp|cxx|hpp|hxx|ipp|py|pyx|pl|pm|rb|rs|go|erl|hrl|el|el\.gz|java|lisp|S|sh|js|php)$"
)
BOOST = r"boost/(?!mpl/|preprocessor/|typeof/|phoenix/.*preprocessed|fusion/.*preprocessed|wave/)"
LINUX = (
    r"^[^/]+/(kernel|mm|lib|fs|net/(core|ipv4|ipv6|sched|netfilter)|block|security|crypto|init|ipc"
    r"|tools/(perf|lib|bpf|testing)|drivers/(base|block|char|md|nvme|pci|input|tty|virtio))/.*"
)


@dataclass(frozen=True)
class Source:
    package: str
    kind: str  # prose or code
    paths: str = ""  # a regular expression on the path; the default is PROSE or CODE
    cap_mb: float = 6.0
    # The licence and its holder where documents may stand in the held-out text of the repository:
    # a permissive licence, and no second rendering in the corpus (pages made from docstrings,
    # sources beside their HTML). Else empty.
    licence: str = ""

    @property
    def pattern(self):
        return self.paths or (PROSE if self.kind == "prose" else CODE)


def prose(package, paths="", cap_mb=6.0, licence=""):
    return Source(package, "prose", paths, cap_mb, licence)


def code(package, paths="", cap_mb=6.0, licence=""):
    return Source(package, "code", paths, cap_mb, licence)


SOURCES = [
    prose("anarchism", r"\.html$", 12),
    prose("apache2-doc", r"\.html(\.en)?$", licence="Apache-2.0, The Apache Software Foundation"),
    prose("apt-doc"),
    prose("aptitude-doc-en"),
    prose("autoconf-doc"),
    prose("bash-doc"),
    prose("bind9-doc"),
    prose("c++-annotations", r".*"),
    prose("cfi-en", r".*"),
    prose("cppreference-doc-en-html", r"/en/.*\.html$", 12),
    prose("db5.3-doc"),
    prose("debian-faq", r"\.en\.(html|txt)(\.gz)?$|/en/"),
    prose("debian-handbook", r"en-US/.*\.html$"),
    prose("debian-history", r".*"),
    prose("debian-kernel-handbook", r".*"),
    prose("debian-policy"),
    prose("debian-reference-en"),
    prose("debmake-doc"),
    prose("developers-reference"),
    prose("dict-devil"),
    prose("dict-foldoc"),
    prose("dict-gcide", cap_mb=14),
    prose("dict-jargon"),
    prose("dict-wn", cap_mb=8),
    prose("doc-debian", r".*"),
    prose("erlang-doc", r"\.html$", 6, "Apache-2.0, Ericsson AB"),
    prose("exim4-doc-html"),
    prose("fortunes", r"games/fortunes/[^.]*$"),
    prose("freebsd-manpages"),
    prose("ghc-doc", r"users_guide/.*\.html$"),
    prose("gimp-help-en"),
    prose("git-doc"),
    prose("glibc-doc"),
    prose("gnome-user-docs", r"/C/.*\.(page|xml)$"),
    prose("gnuplot-doc"),
    prose("guile-3.0-doc"),
    prose("harden-doc"),
    prose("imagemagick-6-doc"),
    prose("installation-guide-amd64", r"/en/.*\.html?$"),
    prose("libglib2.0-doc", cap_mb=3),
    prose("libgtk-3-doc", cap_mb=4),
    prose("libreoffice-help-en-us", r"\.html$", 6),
    prose("lilypond-doc"),
    prose("linux-doc-6.1", r"\.rst(\.gz)?$|_sources/.*\.txt(\.gz)?$|\.html$", 16),
    prose("maint-guide"),
    prose("manpages"),
    prose("manpages-dev"),
    prose("maxima-doc"),
    prose("mh-book"),
    prose("miscfiles", r".*"),
    prose("nethack-spoilers", r".*"),
    prose("nodejs-doc", licence="MIT, Node.js contributors"),
    prose("octave-doc"),
    prose("perl-doc", r"\.(pod|[1-8][a-z]*)(\.gz)?$", 10),
    prose("postfix-doc"),
    prose("postgresql-doc-15", licence="PostgreSQL, PostgreSQL Global Development Group"),
    prose(
        "python-django-doc", r"\.(txt|html)(\.gz)?$", 6, "BSD-3-Clause, Django Software Foundation"
    ),
    prose("python-pandas-doc", r"user_guide/.*|getting_started/.*|whatsnew/.*", 6),
    prose("python-scipy-doc", r"\.html$", 6),
    prose("python-sklearn-doc", r"modules/.*\.html$|tutorial/.*", 6),
    prose("python-sympy-doc", r"\.html$", 6),
    prose("python3.11-doc", r"_sources/.*\.txt$|\.html$", 12),
    prose("r-doc-html"),
    prose("racket-doc", r"\.html$", 6),
    prose(
        "rust-doc",
        r"(book|reference|nomicon|rust-by-example|edition-guide|cargo|rustc)/.*\.html$",
        8,
        "MIT or Apache-2.0, The Rust Project Developers",
    ),
    prose("sagemath-doc", r"/en/.*\.html$", 8),
    prose("sbcl-doc"),
    prose("sphinx-doc", r"\.(txt|rst|html)(\.gz)?$", 3),
    prose("sqlite3-doc", r"\.html$", 8, "public domain"),
    prose("vim-runtime", r"/doc/.*\.txt$", 8),
    prose("zsh-doc"),
    code("emacs-el", cap_mb=7),
    code("erlang-src", cap_mb=5, licence="Apache-2.0, Ericsson AB"),
    code("gcc-12-source", r"/(gcc/[^/]*|libstdc..-v3/src/.*|libgcc/[^/]*)\.(c|h|cc)$", 9),
    code("glibc-source", cap_mb=6),
    code("golang-1.19-src", r"src/.*\.go$", 9, "BSD-3-Clause, The Go Authors"),
    code("libboost1.81-dev", BOOST + r".*\.hpp$", 6),
    code("libeigen3-dev", r"Eigen/.*", 3),
    code("libpython3.11-stdlib", r"\.py$", 10, "PSF-2.0, Python Software Foundation"),
    code("libruby3.1", r"\.rb$", 4),
    code("libstdc++-12-dev", r"include/c\+\+/.*", 4),
    code("linux-source-6.1", LINUX + r"\.[chS]$", 22),
    code("openjdk-17-source", r"java\.base/.*\.java$", 6),
    code("perl-modules-5.36", r"\.p[ml]$", 5),
    code("python3-astropy", r"\.py$", 4, "BSD-3-Clause, Astropy Developers"),
    code("python3-django", r"\.py$", 4, "BSD-3-Clause, Django Software Foundation"),
    code("python3-matplotlib", r"\.py$", 4, "PSF-2.0, Matplotlib Development Team"),
    code("python3-networkx", r"\.py$", 3, "BSD-3-Clause, NetworkX Developers"),
    code("python3-numpy", r"\.py$", 4, "BSD-3-Clause, NumPy Developers"),
    code("python3-pandas", r"\.py$", 5, "BSD-3-Clause, PyData Development Team"),
    code("python3-scipy", r"\.py$", 5, "BSD-3-Clause, SciPy Developers"),
    code("python3-sklearn", r"\.py$", 4, "BSD-3-Clause, scikit-learn developers"),
    code("python3-sympy", r"\.py$", 5, "BSD-3-Clause, SymPy Development Team"),
    code("python3-twisted", r"\.py$", 4, "MIT, Twisted Matrix Laboratories"),
    code("rust-src", r"library/.*\.rs$", 8, "MIT or Apache-2.0, The Rust Project Developers"),
    code("sbcl-source", r"\.lisp$", 3, "public domain"),
    code("wordpress", r"\.php$", 4),
]
