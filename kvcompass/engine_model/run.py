"""A run of KV blocks that were always used together, wherever they are held."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Run:
    """Consecutive pages of tokens and, through its parents, everything before them.

    All that a policy looks at is the same for each of its blocks. A tier holds the first so many of them:
    what a tier lets go, it lets go from the end. A run with no page and no parent is the root of a tree.
    """

    parent: "Run | None"
    data: bytes
    """Tokens, int32 little endian, of `len(names)` pages and maybe of those that were forgotten since."""
    names: tuple[int, ...]
    """Of each block; as many as the fuller tier holds."""
    digests: list[bytes]
    """Of each block, where names are hashes; of what is before the first page, in a root."""
    serial: int
    """Counts blocks in the order of their creation; that of the first block, the others follow."""
    last_use: int = 0
    """The cache's clock at the last use: orders uses within one instant too. Equal on one path only."""
    used_us: int = 0
    """Model time of the last use."""
    workload: str = ""
    """Category of the request that used it last."""
    hits: int = 0
    """Requests that found it here."""
    locks: int = 0
    """Running requests that hold it in VRAM."""
    vram: int = 0
    """Blocks that VRAM holds, from the first on."""
    dram: int = 0
    """Blocks that DRAM holds, from the first on."""
    vram_children: int = 0
    """Runs right below of which VRAM holds some."""
    dram_children: int = 0
    children: "dict[bytes, Run]" = field(default_factory=dict)
    """By their first page."""

    def split(self, blocks: int, page_bytes: int) -> "Run":
        """Cut the first `blocks` off into a run of its own above this one; return it.

        Whoever holds this run holds both. Costs what copying its data costs.
        """
        parent = self.parent
        assert parent is not None
        assert 0 < blocks < len(self.names)
        cut = blocks * page_bytes
        upper = Run(
            parent,
            self.data[:cut],
            self.names[:blocks],
            self.digests[:blocks],
            self.serial,
            self.last_use,
            self.used_us,
            self.workload,
            self.hits,
            self.locks,
            min(self.vram, blocks),
            min(self.dram, blocks),
        )
        parent.children[self.data[:page_bytes]] = upper
        self.parent = upper
        self.data = self.data[cut : len(self.names) * page_bytes]
        self.names = self.names[blocks:]
        self.digests = self.digests[blocks:]
        self.serial += blocks
        self.vram = max(0, self.vram - blocks)
        self.dram = max(0, self.dram - blocks)
        upper.vram_children = 1 if self.vram else 0
        upper.dram_children = 1 if self.dram else 0
        upper.children[self.data[:page_bytes]] = self
        return upper

    def truncate(self, page_bytes: int) -> bool:
        """Forget the blocks that no tier holds; without any left, leave the tree and return False."""
        held = self.vram if self.vram > self.dram else self.dram
        if held < len(self.names):
            self.names = self.names[:held]
            del self.digests[held:]
            if not held:
                assert self.parent is not None
                assert not self.children
                del self.parent.children[self.data[:page_bytes]]
        return held > 0
