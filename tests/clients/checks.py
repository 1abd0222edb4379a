"""Runs the checks of one client in order, prints a line for each, and ends with the counts that the runner adds up."""
import traceback


def run(*checks):
    """The exit status of the program. A check is a function; its docstring is what the line says."""
    failed = 0
    for check in checks:
        try:
            check()
        except Exception:
            failed += 1
            print(f"FAILED {check.__doc__}\n{traceback.format_exc()}", flush=True)
        else:
            print(f"ok {check.__doc__}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0
