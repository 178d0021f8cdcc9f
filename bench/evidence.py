"""How many signed exchanges a second Spark verifies.

    python -m bench.evidence [exchanges] [master]

It makes the exchanges (a message and the acknowledgement that its receiver signed, both RSA 2048),
puts them into one tar file as an archive would be, and times `oncewire pipeline evidence`: the
first time with Spark's workers cold, the second time warm.
"""

import io
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from oncewire.pipeline import jobs
from oncewire.pipeline.judging.evidence import Signers, prove_archive
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.session import open_session
from oncewire.wire.parcel import as_file
from tests.pipeline.books import make_stores, small_year
from tests.pipeline.exchanges import PARTIES, exchanges


def make_archive(file: Path, count: int) -> float:
    """Write the exchanges; returns the seconds that it took."""
    began = time.perf_counter()
    with tarfile.open(file, "w") as bundle:
        for each in exchanges(range(1, count + 1)):
            for name, parcel in (("message", each.message), ("answer", each.answer)):
                data = as_file(parcel)
                entry = tarfile.TarInfo(f"{each.message_id}.{name}.mime")
                entry.size = len(data)
                bundle.addfile(entry, io.BytesIO(data))
    return time.perf_counter() - began


def main() -> None:
    """Print how long it took to make and to verify them."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    master = sys.argv[2] if len(sys.argv) > 2 else "local[2]"
    signers = Signers({party: (who.certificate_pem,) for party, who in PARTIES.items()})
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as folder:
        place = Path(folder)
        took = make_archive(place / "exchanges.tar", count)
        print(f"made      {count:>9,} exchanges in {took:8.1f} s  {count / took:9,.0f}/s")
        spark = open_session(master=master)
        lake = Lake(place / "lake")
        jobs.run(spark, lake, make_stores(place / "stores", small_year(20, 7)[1]))
        for name in ("cold", "warm"):
            began = time.perf_counter()
            found = prove_archive(spark, lake, [place / "exchanges.tar"], signers)
            took = time.perf_counter() - began
            if found.proven != count:
                raise SystemExit(f"{found.proven} of {count} are proven")
            print(f"{name:<10}{count:>9,} exchanges in {took:8.1f} s  {count / took:9,.0f}/s")


if __name__ == "__main__":
    main()
