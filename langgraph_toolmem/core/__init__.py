"""The core, the base of all methods: lifecycle, ledger, rows, jobs, users and tools."""
