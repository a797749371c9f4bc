"""On what a benchmark ran."""

import os
import platform
import sqlite3
from pathlib import Path

import psycopg


def machine(database: str | None = None) -> dict[str, str | int]:
    """CPU model, cores, memory in MB, system, Python, SQLite, and PostgreSQL where a database there is named."""
    told: dict[str, str | int] = {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "system": _system(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    if database:
        with psycopg.connect(database) as connection:
            version = connection.info.parameter_status("server_version") or "unknown"
            told["postgresql"] = version.split()[0]  # without the packager's
    return told


def line(told: dict[str, str | int]) -> str:
    """A machine in one line, with the database that was used."""
    database = f"PostgreSQL {told['postgresql']}" if "postgresql" in told else f"SQLite {told['sqlite']}"
    memory = f"{int(told['memory_mb']) / 1024:.0f} GiB"
    return f"{told['cpu']}, {told['cores']} cores, {memory}, {told['system']}, Python {told['python']}, {database}"


def _cpu() -> str:
    return _after("/proc/cpuinfo", "model name", ": ") or platform.processor() or platform.machine()


def _system() -> str:
    return _after("/etc/os-release", "PRETTY_NAME", "=").strip('"') or platform.platform()


def _after(file: str, start: str, separator: str) -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(separator)[2] for line in lines if line.startswith(start)), "")
