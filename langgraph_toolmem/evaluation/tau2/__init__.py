"""tau2-bench as a source of tasks: its environments, orchestrator, user simulator and evaluator.

The benchmark is not a dependency: https://github.com/sierra-research/tau2-bench (MIT). It needs Python 3.12; install it
in an environment of its own, together with this package.
"""
