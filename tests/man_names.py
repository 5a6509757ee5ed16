# SPDX-License-Identifier: Apache-2.0
"""man_names.py TOP: do the manuals and lib/kvshm.h name the same things? Prints TAP."""

import pathlib
import re
import sys

TOP = pathlib.Path(sys.argv[1])
PAGES = {p.name: p.read_text() for p in sorted((TOP / "man").glob("*.[1-9]"))}
SECTION3 = {name: text for name, text in PAGES.items() if name.endswith(".3")}
HEADER = re.sub(r"/\*.*?\*/", " ", (TOP / "lib/kvshm.h").read_text(), flags=re.S)
LINKS = dict(re.findall(r"(kvshm\S+)=(\S+)", (TOP / "man/local.mk").read_text()))
LISTED = re.findall(r"man/(\S+\.[1-9])\b", (TOP / "man/local.mk").read_text())

# Where the fields of each struct are described. What the library keeps in a struct for itself is not.
STRUCTS = {
    "kvshm_geometry": "kvshm_config_init.3",
    "kvshm_config": "kvshm_config_init.3",
    "kvshm_prefix": "kvshm_prefix_init.3",
    "kvshm_lease": "kvshm_lookup.3",
    "kvshm_reservation": "kvshm_reserve.3",
    "kvshm_entry": "kvshm_foreach.3",
    "kvshm_info": "kvshm_info.3",
    "kvshm_stats": "kvshm-counters.7",
}
PRIVATE = {
    "kvshm_config": {"reserved"},
    "kvshm_lease": {"reserved", "kv", "page_seq", "page", "word", "spare"},
    "kvshm_reservation": {"reserved", "kv", "frames", "epoch", "word", "spare"},
}
NOT_FOR_USERS = {"KVSHM_H", "KVSHM_API"}


def squeeze(text):
    return re.sub(r"\s*([(),*])\s*", r"\1", re.sub(r"\s+", " ", text)).strip()


def prototypes():
    """Of the header: name -> prototype without a space too many."""
    found = re.findall(r"KVSHM_API\s+([^;]+);", re.sub(r"^#.*$", "", HEADER, flags=re.M))
    return {re.search(r"(kvshm_\w+)\(", p)[1]: squeeze(p).replace("KVSHM_KEY_BYTES", "32") for p in found}


def synopses():
    """Of the pages: name -> (page, prototype)."""
    found = {}
    pattern = r'^\.Ft "?([^"\n]+)"?\n\.Fo (\w+)\n((?:\.Fa "[^"]+"\n)*)\.Fc'
    for page, text in SECTION3.items():
        for kind, name, args in re.findall(pattern, text, flags=re.M):
            found[name] = (page, squeeze("%s %s(%s)" % (kind, name, ", ".join(re.findall(r'"([^"]+)"', args)))))
    return found


def names_of(text):
    return re.findall(r"^\.Nm (\S+)", text.split(".Sh SYNOPSIS")[0].split(".Sh DESCRIPTION")[0], flags=re.M)


def fields(struct):
    body = re.search(r"struct %s \{(.*?)\n\};" % struct, HEADER, flags=re.S)[1]
    declared = re.findall(r"(\w+(?:, \w+)*)(?:\[[^]]*\])*;", body)
    return {name for names in declared for name in names.split(", ")} - PRIVATE.get(struct, set())


def missing_prototypes():
    pages = synopses()
    macros = set(re.findall(r"#define (kvshm_\w+)\(", HEADER))
    for name, prototype in prototypes().items():
        if name not in pages:
            yield name + " has no page"
        elif pages[name][1] != prototype:
            yield "%s: header: %s; %s: %s" % (name, prototype, *pages[name])
    for name in set(pages) - set(prototypes()) - macros:
        yield "%s: kvshm.h has no %s" % (pages[name][0], name)
    for name in macros - set(pages):
        yield name + " has no page"
    for name in re.findall(r"\(\*(kvshm_\w+)\)", HEADER):
        if not any(name in text for text in SECTION3.values()):
            yield name + " has no page"


def wrong_names():
    for page, text in SECTION3.items():
        for name in names_of(text):
            if name + ".3" != page and LINKS.get(name + ".3") != page:
                yield "%s names %s, and man/local.mk has no link for it" % (page, name)
    for name, (page, _) in synopses().items():
        if name not in names_of(PAGES[page]):
            yield "%s is in SYNOPSIS of %s, and not under NAME" % (name, page)
    for link, page in LINKS.items():
        if link[:-2] not in names_of(PAGES.get(page, "")):
            yield "the link %s of man/local.mk is no name of %s" % (link, page)


def wrong_references():
    for page, text in PAGES.items():
        for name, section in re.findall(r"^\.Xr (kvshm\S*) (\d)", text, flags=re.M):
            if "%s.%s" % (name, section) not in PAGES and "%s.%s" % (name, section) not in LINKS:
                yield "%s refers to %s(%s), which is not there" % (page, name, section)


def unlisted_pages():
    for page in set(PAGES) ^ set(LISTED):
        yield "%s is in man/ or in man/local.mk, and not in both" % page


def missing_constants():
    text = "".join(PAGES.values())
    for name in sorted(set(re.findall(r"\b(KVSHM_[A-Z][A-Z0-9_]*)\b", HEADER)) - NOT_FOR_USERS):
        if not re.search(r"\b%s\b" % name, text):
            yield "no page has " + name


def missing_fields():
    for struct, page in STRUCTS.items():
        words = set(re.findall(r"[a-z_]+", PAGES[page]))
        for name in sorted(fields(struct) - words):
            yield "%s does not have %s.%s" % (page, struct, name)
    for struct in set(re.findall(r"struct (\w+) \{", HEADER)) - set(STRUCTS):
        yield "struct %s has no page" % struct


def wrong_errors():
    codes = set(re.findall(r"(KVSHM_E_\w+),", (TOP / "lib/errors.def").read_text()))
    used = set()
    for page, text in SECTION3.items():
        listed = set(re.findall(r"^\.It Bq Er (KVSHM_E_\w+)", text, flags=re.M))
        used |= listed
        for code in sorted(set(re.findall(r"KVSHM_E_\w+", text)) - codes):
            yield "%s: there is no %s" % (page, code)
    for code in sorted(codes - used):
        yield "no page of section 3 lists " + code
    outcomes = re.search(r"enum kvshm_outcome \{(.*?)\}", HEADER, flags=re.S).group(1)
    for name, value in re.findall(r"(KVSHM_\w+) = (\d+)", outcomes):
        if ".It Dv %s Pq %s\n" % (name, value) not in PAGES["kvshm_errors.7"]:
            yield "kvshm_errors.7 does not list the outcome %s (%s)" % (name, value)


def main():
    checks = (missing_prototypes, wrong_names, wrong_references, unlisted_pages, missing_constants, missing_fields,
              wrong_errors)
    assert len(prototypes()) > 40 and all(fields(struct) for struct in STRUCTS)
    print("1..%d" % len(checks))
    for number, check in enumerate(checks, 1):
        faults = list(check())
        for fault in faults:
            print("# " + fault)
        print("%s %d - no_%s" % ("not ok" if faults else "ok", number, check.__name__))


main()
