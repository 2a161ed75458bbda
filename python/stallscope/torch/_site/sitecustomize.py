"""Brings the hooks to interpreters that a profiled script starts, and then the `sitecustomize` that hides behind it."""

import os
import sys


def _hooks() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    own = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError:
        # The import that runs this looks for it.
        sys.modules["sitecustomize"] = own
    if "STALLSCOPE_TORCH" in os.environ:
        package = os.path.dirname(os.path.dirname(os.path.dirname(here)))
        sys.path.append(package)
        try:
            from stallscope.torch import _hooks

            _hooks.install_as_child()
        except Exception as error:
            sys.stderr.write(f"warning: stallscope does not see this process: {error}\n")
        finally:
            sys.path.remove(package)


_hooks()
