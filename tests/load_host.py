# SPDX-License-Identifier: Apache-2.0
"""load_host.py LIBRARY HEADER [COPY]: a Python host of the shared library. Prints TAP.

The structs and prototypes of the header are read from its text. Every function of it is called at least once, and what
it answers is looked at. COPY is the same library in another file, which the process loads too. With jemalloc loaded before
Python, the library's memory has to be in an arena of its own, whose statistics agree with kvshm_stats.
"""

import ctypes
import os
import re
import sys
import tempfile

BASIC = {
    "int": ctypes.c_int, "unsigned": ctypes.c_uint, "bool": ctypes.c_bool, "char": ctypes.c_char,
    "size_t": ctypes.c_size_t, "uint8_t": ctypes.c_uint8, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64, "void": None, "kvshm": None,
}
NAME_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
ENTRY_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Header:
    def __init__(self, path):
        text = re.sub(r"/\*.*?\*/", " ", open(path).read(), flags=re.S)
        self.number = {name: int(value, 0) for name, value in
                       re.findall(r"#define (KVSHM_\w+) (0x[0-9a-f]+|\d+)", text)}
        self.number.update((name, int(value)) for name, value in re.findall(r"\b(KVSHM_\w+) = (-?\d+),", text))
        self.struct = {}
        for name, body in re.findall(r"struct (kvshm_\w+) \{(.*?)\n\};", text, flags=re.S):
            self.struct[name] = type(name, (ctypes.Structure,), {"_fields_": list(self.fields(body))})
        self.prototype = re.findall(r"KVSHM_API ([^;{}]*?)\b(kvshm_\w+)\(([^;]*)\);", text)

    def of(self, words, stars):
        """The type of a declaration without its name. A pointer is any address, but text is text."""
        words = [word for word in words if word not in ("const", "struct")]
        if stars:
            return ctypes.c_char_p if words == ["char"] and stars == 1 else ctypes.c_void_p
        return self.struct[words[0]] if words[0] in self.struct else BASIC[words[0]]

    def size(self, text):
        return sum(self.number[part] if part in self.number else int(part) for part in text.split("+"))

    def fields(self, body):
        body = re.sub(r"\[([^]]*)\]", lambda size: "[%s]" % size[1].replace(" ", ""), body)
        for declaration in filter(None, (part.strip() for part in body.split(";"))):
            first, *more = declaration.split(",")
            *base, name = first.replace("*", " * ").split()
            for name in [name, *more]:
                kind = self.of([word for word in base if word != "*"], base.count("*"))
                for size in re.findall(r"\[([^]]*)\]", name):
                    kind = kind * self.size(size)
                yield re.match(r"\s*(\w+)", name)[1], kind

    def parameter(self, text):
        if "kvshm_name_fn" in text:
            return NAME_FN
        if "kvshm_entry_fn" in text:
            return ENTRY_FN
        words = text.replace("*", " * ").split()
        stars = words.count("*") + text.count("[")
        names = [word for word in words if word != "*" and "[" not in word]
        return self.of(names[:-1] if "[" not in text else names, stars)


class Library:
    """Calls as lib.kvshm_lookup(...); keeps in mind which were called."""

    def __init__(self, path, header):
        self.header = header
        self.called = set()
        self.library = ctypes.CDLL(path)
        for answer, name, parameters in header.prototype:
            function = getattr(self.library, name)
            words = answer.replace("*", " * ").split()
            function.restype = header.of([word for word in words if word != "*"], words.count("*"))
            if parameters.strip() != "void":
                function.argtypes = [header.parameter(part) for part in re.sub(r"\s+", " ", parameters).split(", ")]
            setattr(self, name, self.noting(name, function))

    def noting(self, name, function):
        def call(*arguments):
            self.called.add(name)
            return function(*arguments)
        return call

    def make(self, name):
        return self.header.struct[name]()

    def handle(self, code, out):
        assert code == 0, self.kvshm_errmsg(None)
        assert out.value
        return out

    def config(self):
        config = self.make("kvshm_config")
        self.kvshm_config_init_sized(ctypes.byref(config), ctypes.sizeof(config))
        assert config.size == ctypes.sizeof(config)
        config.geometry.page_bytes, config.geometry.page_tokens, config.frames = 256, 4, 8
        return config

    def attach(self, name, flags=0):
        out = ctypes.c_void_p()
        return self.handle(self.kvshm_attach(name, None, flags, ctypes.byref(out)), out)

    def stats(self, kv):
        stats = self.make("kvshm_stats")
        self.kvshm_stats_init_sized(ctypes.byref(stats), ctypes.sizeof(stats))
        assert self.kvshm_stats(kv, ctypes.byref(stats)) == 0
        return stats

    def info(self, kv):
        info = self.make("kvshm_info")
        self.kvshm_info_init_sized(ctypes.byref(info), ctypes.sizeof(info))
        assert self.kvshm_info(kv, ctypes.byref(info)) == 0
        return info

    def tokens(self, first, n):
        """A prefix, and what keeps its tokens alive."""
        tokens = (ctypes.c_uint32 * n)(*range(first, first + n))
        prefix = self.make("kvshm_prefix")
        self.kvshm_prefix_init(ctypes.byref(prefix), 0, 0, tokens, n)
        return prefix, tokens


def life(lib):
    """Making and removing."""
    number, ref = lib.header.number, ctypes.byref
    version = "%d.%d.%d" % tuple(number["KVSHM_VERSION_" + part] for part in ("MAJOR", "MINOR", "PATCH"))
    assert lib.kvshm_version().decode() == version
    assert lib.kvshm_strerror(0) == b"success"
    config, out = lib.config(), ctypes.c_void_p()
    kv = lib.handle(lib.kvshm_create(b"python", ref(config), 0, ref(out)), out)
    assert lib.kvshm_create(b"python", ref(config), 0, ref(ctypes.c_void_p())) == -17
    assert b"exists" in lib.kvshm_errmsg(kv)
    other = ctypes.c_void_p()
    lib.handle(lib.kvshm_open(b"python", ref(config), 0, ref(other)), other)
    names = []
    assert lib.kvshm_list(NAME_FN(lambda name, path, arg: names.append(name) or 0), None) == 0
    assert names == [b"python"]
    assert lib.info(kv).clients == 2
    assert lib.kvshm_join(kv, lib.info(other).client) == 0
    assert lib.kvshm_leave(kv, lib.info(other).client) == 0
    assert lib.kvshm_detach(other) == 0
    assert lib.kvshm_unlink(b"python", 0) == -16
    return kv


def pure(lib):
    ref = ctypes.byref
    geometry = lib.make("kvshm_geometry")
    geometry.num_layers, geometry.num_kv_heads, geometry.head_dim, geometry.page_tokens = 2, 2, 8, 4
    geometry.shards = geometry.token_scale = 1
    assert lib.kvshm_page_bytes(ref(geometry)) == 2 * 2 * 4 * 16 * 4
    assert lib.kvshm_pages_for_tokens(9, 4) == 3
    assert lib.kvshm_hash_tokens((ctypes.c_uint32 * 1)(0), 1) != 0
    prefix = lib.make("kvshm_prefix")
    lib.kvshm_prefix_init_key(ref(prefix), 1, 2, bytes(range(32)), 4)
    assert bytes(prefix.key) == bytes(range(32)) and prefix.adapter_id == 1
    lib.kvshm_prefix_init_hash(ref(prefix), 1, 2, 0x0102, 4)
    assert bytes(prefix.key)[:3] == b"\x02\x01\x00"


def fill(lib, kv):
    """Eight tokens, whose two pages hold a and b."""
    ref = ctypes.byref
    prefix, tokens = lib.tokens(10, 8)
    r, lease, offsets = lib.make("kvshm_reservation"), lib.make("kvshm_lease"), (ctypes.c_uint64 * 2)()
    assert lib.kvshm_reserve(kv, 2, 0, ref(r)) == 0 and r.pages == 2
    for i, letter in enumerate(b"ab"):
        ctypes.memset(lib.kvshm_reservation_page(ref(r), i), letter, 256)
    assert lib.kvshm_reservation_page(ref(r), 2) is None
    assert lib.kvshm_reservation_offsets(ref(r), 0, 2, offsets) == 2
    assert ctypes.string_at(lib.kvshm_at_writable(kv, offsets[1]), 256) == b"b" * 256
    assert lib.kvshm_insert(kv, ref(prefix), ref(lease), ref(r), lib.header.number["KVSHM_HOLD"]) == 0
    assert lease.tokens == 8 and r.pages == 0
    lib.kvshm_release(kv, ref(lease))
    assert lib.kvshm_reserve(kv, 1, 0, ref(r)) == 0
    lib.kvshm_cancel(kv, ref(r))


def find(lib, kv, reader):
    ref = ctypes.byref
    prefix, tokens = lib.tokens(10, 8)
    lease, pages, offsets = lib.make("kvshm_lease"), (ctypes.c_void_p * 2)(), (ctypes.c_uint64 * 2)()
    assert lib.kvshm_contains(kv, ref(prefix)) and lib.kvshm_contains(reader, ref(prefix))
    assert lib.kvshm_lookup(kv, ref(prefix), 0, ref(lease)) == 0
    lib.kvshm_lease_tag(ref(lease), 5)
    assert ctypes.string_at(lib.kvshm_lease_page(ref(lease), 0), 256) == b"a" * 256
    assert lib.kvshm_lease_pages(ref(lease), 0, 2, pages) == 2
    assert ctypes.string_at(pages[1], 256) == b"b" * 256
    assert lib.kvshm_lease_offsets(ref(lease), 0, 2, offsets) == 2
    assert lib.kvshm_at(kv, offsets[0]) == pages[0]
    assert lib.kvshm_detach(kv) == -16
    lib.kvshm_release(kv, ref(lease))
    longer, more = lib.tokens(10, 20)
    assert lib.kvshm_match(kv, ref(longer), 0, ref(lease)) == 0 and lease.tokens == 8
    lib.kvshm_release(kv, ref(lease))
    copy = ctypes.create_string_buffer(512)
    assert lib.kvshm_copy_out(reader, ref(prefix), 0, 2, copy) == 2 and copy.raw == b"a" * 256 + b"b" * 256


def give_up(lib, kv):
    ref = ctypes.byref
    seen = []
    assert lib.kvshm_foreach(kv, ENTRY_FN(lambda entry, arg: seen.append(entry) or 0), None) == 0 and len(seen) == 1
    prefix, tokens = lib.tokens(10, 8)
    assert lib.kvshm_remove(kv, ref(prefix)) == 0
    assert lib.kvshm_remove(kv, ref(prefix)) == lib.header.number["KVSHM_MISS"]
    fill(lib, kv)
    assert lib.kvshm_evict_lru(kv) == 2
    fill(lib, kv)
    assert lib.kvshm_clear(kv) == 0
    assert not lib.kvshm_contains(kv, ref(prefix))


def second_tier(lib):
    """A page leaves memory for a file, and comes back."""
    number, ref = lib.header.number, ctypes.byref
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        config, out = lib.config(), ctypes.c_void_p()
        config.spill_path, config.spill_bytes = os.path.join(folder, "spill").encode(), 1 << 20
        kv = lib.handle(lib.kvshm_create(b"tiered", ref(config), 0, ref(out)), out)
        fill(lib, kv)
        assert lib.kvshm_flush(kv) == 0
        assert lib.kvshm_evict_lru(kv) == 2
        prefix, tokens = lib.tokens(10, 8)
        lease, time = lib.make("kvshm_lease"), ctypes.create_string_buffer(16)
        assert lib.kvshm_eventfd(kv) > 2
        assert lib.kvshm_prefetch(kv, ref(prefix), 1) == 1
        assert lib.kvshm_wait(kv, None) == 1
        assert lib.kvshm_wait(kv, time) == 0
        assert lib.kvshm_lookup(kv, ref(prefix), number["KVSHM_WAIT"], ref(lease)) == 0
        assert ctypes.string_at(lib.kvshm_lease_page(ref(lease), 1), 256) == b"b" * 256
        lib.kvshm_release(kv, ref(lease))
        assert lib.kvshm_detach(kv) == 0 and lib.kvshm_unlink(b"tiered", 0) == 0


def every_function(lib):
    second_tier(lib)
    kv = life(lib)
    reader = lib.attach(b"python", lib.header.number["KVSHM_RDONLY"])
    pure(lib)
    fill(lib, kv)
    find(lib, kv, reader)
    give_up(lib, kv)
    assert lib.stats(kv).evicted_entries == 1
    assert lib.kvshm_detach(reader) == 0 and lib.kvshm_detach(kv) == 0 and lib.kvshm_detach(None) == 0
    assert lib.kvshm_unlink(b"python", 0) == 0
    missed = {name for _, name, _ in lib.header.prototype} - lib.called
    assert not missed, "not called: " + ", ".join(sorted(missed))


def forked(lib):
    """os.fork() of the host: the child is told so, attaches anew, and reads."""
    config, out = lib.config(), ctypes.c_void_p()
    kv = lib.handle(lib.kvshm_create(b"python", ctypes.byref(config), 0, ctypes.byref(out)), out)
    fill(lib, kv)
    pid = os.fork()
    if pid == 0:
        good = lib.kvshm_clear(kv) == lib.header.number["KVSHM_E_FORKED"]
        prefix, tokens = lib.tokens(10, 8)
        own = lib.attach(b"python")
        good = good and lib.kvshm_contains(own, ctypes.byref(prefix)) and lib.kvshm_detach(own) == 0
        os._exit(0 if good and lib.kvshm_detach(kv) == 0 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert lib.info(kv).clients == 1 and lib.info(kv).entries == 1
    assert lib.kvshm_detach(kv) == 0 and lib.kvshm_unlink(b"python", 0) == 0


def twice(lib, copy):
    """Two instances in one process are two clients, and know nothing of each other's handles."""
    config, out = lib.config(), ctypes.c_void_p()
    kv = lib.handle(lib.kvshm_create(b"python", ctypes.byref(config), 0, ctypes.byref(out)), out)
    fill(lib, kv)
    other = copy.attach(b"python")
    assert lib.info(kv).client != copy.info(other).client and copy.info(other).clients == 2
    prefix, tokens = copy.tokens(10, 8)
    lease = copy.make("kvshm_lease")
    assert copy.kvshm_lookup(other, ctypes.byref(prefix), 0, ctypes.byref(lease)) == 0
    assert lib.kvshm_evict_lru(kv) == 0 and lib.info(kv).pages_limbo == 2
    assert lib.stats(kv).private_bytes > 0 and copy.stats(other).private_bytes > 0
    pid = os.fork()
    if pid == 0:
        held = ["/proc/self/fd/%d" % fd for fd in range(64)]
        os._exit(any(os.readlink(path).endswith("/python") for path in held if os.path.lexists(path)))
    assert os.waitpid(pid, 0)[1] == 0, "a child has a descriptor of the segment"
    copy.kvshm_release(other, ctypes.byref(lease))
    assert copy.kvshm_detach(other) == 0 and lib.info(kv).clients == 1
    assert lib.kvshm_detach(kv) == 0 and lib.kvshm_unlink(b"python", 0) == 0


def jemalloc_bytes(mallctl, arena):
    """What jemalloc's statistics say is allocated in the arena."""
    epoch, size = ctypes.c_uint64(1), ctypes.c_size_t(8)
    assert mallctl(b"epoch", ctypes.byref(epoch), ctypes.byref(size), ctypes.byref(epoch), 8) == 0
    total = 0
    for kind in ("small", "large"):
        value, size = ctypes.c_size_t(), ctypes.c_size_t(8)
        name = b"stats.arenas.%d.%s.allocated" % (arena, kind.encode())
        assert mallctl(name, ctypes.byref(value), ctypes.byref(size), None, 0) == 0
        total += value.value
    return total


def memory(lib, mallctl):
    """kvshm_stats shows where the library's memory is, and how much."""
    config, out = lib.config(), ctypes.c_void_p()
    config.frames = 20000 # its bitmaps are of some size
    kv = lib.handle(lib.kvshm_create(b"python", ctypes.byref(config), 0, ctypes.byref(out)), out)
    r = lib.make("kvshm_reservation")
    assert lib.kvshm_reserve(kv, 1, 0, ctypes.byref(r)) == 0 # makes the bitmaps
    lib.kvshm_cancel(kv, ctypes.byref(r))
    before = lib.stats(kv)
    assert before.private_bytes > 2 * 20000 / 8
    if mallctl is None:
        assert before.private_arena == -1
        assert lib.kvshm_detach(kv) == 0 and lib.kvshm_unlink(b"python", 0) == 0
        return
    assert before.private_arena > 0
    allocated = jemalloc_bytes(mallctl, before.private_arena)
    assert before.private_bytes <= allocated <= 2 * before.private_bytes + 4096
    assert lib.kvshm_reserve(kv, 20000, 0, ctypes.byref(r)) == 0
    after = lib.stats(kv)
    assert after.private_bytes == before.private_bytes + 20000 * 4
    assert jemalloc_bytes(mallctl, before.private_arena) >= allocated + 20000 * 4
    lib.kvshm_cancel(kv, ctypes.byref(r))
    assert lib.stats(kv).private_bytes == before.private_bytes
    assert jemalloc_bytes(mallctl, before.private_arena) == allocated
    lib.kvshm_detach(kv)
    assert lib.kvshm_unlink(b"python", 0) == 0
    assert jemalloc_bytes(mallctl, before.private_arena) == 0


def main():
    header = Header(sys.argv[2])
    lib = Library(sys.argv[1], header)
    mallctl = getattr(ctypes.CDLL(None), "mallctl", None)
    where = "on_jemalloc" if mallctl is not None else "on_the_c_library"
    every_function(lib)
    print("ok - every_function_" + where)
    forked(lib)
    print("ok - forked_" + where)
    twice(lib, Library(sys.argv[3], header))
    print("ok - loaded_twice_" + where)
    memory(lib, mallctl)
    print("ok - memory_" + where)


main()
