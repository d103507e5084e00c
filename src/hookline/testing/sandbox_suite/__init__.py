"""The conformance suite for sandboxes of `hookline.workspace`: attacks that must fail.

    @pytest.mark.parametrize("attack", ATTACKS, ids=str)
    async def test_an_attack_fails(attack: Attack) -> None:
        await attack.run(MySandbox())

Each attack is a command in a workspace of its own, which has hidden and read-only files, beside a
file that the command must not reach and next to sockets that it must not connect to. Run the suite
as an unprivileged user, and limit the number of processes first. The sandbox needs python3 and git.
"""

from hookline.testing.sandbox_suite._suite import ATTACKS, Attack

__all__ = ["ATTACKS", "Attack"]
