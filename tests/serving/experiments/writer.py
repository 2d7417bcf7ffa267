"""A process that records outcomes at the URL it is given until it is killed, and prints what was confirmed."""

import sys
from itertools import count

from serving.experiments.ledger import open_ledger
from tests.serving.experiments.support import outcome


def main(url: str) -> None:
    with open_ledger(url) as ledger:
        for batch in count():
            made = [outcome(request_id=f"r{batch}", index=index) for index in range(20)]
            confirmed = ledger.record(made) | ledger.record(made[:5])
            sys.stdout.write(" ".join(sorted(confirmed)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
