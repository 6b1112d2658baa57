"""Fetch the public recorded runs and tool catalogues, and convert them to the layout that the benchmarks read.

    python -m benchmarks.data [--into ../shared/data] [--from FOLDER] [--sets workbench tau …]

Each source is fetched with git at the commit named below, or read from a checkout `FOLDER/<repository>`. Four sources
are programs: their own tools run here, on their own data, to give the recorded results. They need pandas and mpmath.
`side_effects.json` says which tools only read and which destroy; that is our reading of names and schemas.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import importlib
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from benchmarks import lines_of, load

Json = dict[str, Any]
Sets = Iterator[tuple[str, list[Json], list[Json]]]
"""Name of a set, its tools, its runs or queries."""
TYPES: Final = {
    "str": "string", "float": "number", "int": "integer", "bool": "boolean", "dict": "object", "list": "array",
    "tuple": "array", "NoneType": "null",
}  # fmt: skip


class Source(NamedTuple):
    """A repository at a commit, the folders that are read, and the converter."""

    repository: str
    commit: str
    folders: Sequence[str]
    convert: Callable[[Path], Sets]


# --- messages and schemas ---


FAILED: Final = re.compile(r"^Error|not valid|must be one of|not provided|^Missing")


def exchange(number: int, name: str, args: Json, told: str, content: str = "") -> list[Json]:
    """Return an assistant's message with one call, and the tool's answer."""
    function = {"name": name, "arguments": json.dumps(args, ensure_ascii=False)}
    id_ = f"call_{number:03}"
    called = {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": id_, "type": "function", "function": function}],
    }
    answer = {"role": "tool", "tool_call_id": id_, "name": name, "content": told}
    return [called, {**answer, "status": "error"} if FAILED.search(told) else answer]


def schema(name: str, description: str, properties: Json, required: Iterable[str], **more: Any) -> Json:
    """Return the schema of a tool; what is None in `more` is left out."""
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    known = {key: value for key, value in more.items() if value is not None}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters, **known},
    }


def by_name(tools: Iterable[Json]) -> list[Json]:
    """Sort tools by their names."""
    return sorted(tools, key=lambda tool: str(tool["function"]["name"]))


def parsed(text: str, parameters: Json | None = None) -> tuple[str, Json]:
    """Return the name and the arguments of a written call; `parameters` name those of each function in order."""
    node = ast.parse(text.strip(), mode="eval").body
    assert isinstance(node, ast.Call)
    name = ast.unparse(node.func)
    args = dict(zip((parameters or {}).get(name, ()), map(ast.literal_eval, node.args), strict=False))
    return name, args | {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}


def attempt(act: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Return what a source's own tool gives; an error is a result too."""
    try:
        return act(*args, **named)
    except Exception as error:  # noqa: BLE001 - the tools of the sources raise anything
        return f"Error: {error}"


@contextmanager
def program(folder: Path, *stubs: str) -> Iterator[Callable[[str], ModuleType]]:
    """Yield a function that imports modules of a checkout; modules named as stubs are empty ones."""
    before, known = Path.cwd(), set(sys.modules)
    for name in stubs:
        sys.modules[name] = stub = ModuleType(name)
        stub.__getattr__ = lambda _: None  # type: ignore[method-assign]
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if name.split(".")[0] in {"src", "tau_bench", "bfcl_eval", "state_bench", *stubs}:
                del sys.modules[name]


# --- tau2-bench: recorded runs of models with a simulated user ---

TAU2: Final = (
    ("tau2_retail_gpt41mini", "retail", "gpt-4.1-mini-2025-04-14_retail_base_gpt-4.1-2025-04-14_4trials.json"),
    ("tau2_telecom_gpt41", "telecom", "gpt-4.1-2025-04-14_telecom_default_gpt-4.1-2025-04-14_4trials.json"),
    ("tau2_airline_gpt54", "airline", "gpt-5.4_airline.json"),
)


def tau2(folder: Path) -> Sets:
    """Convert tau2-bench: 300 runs in the shop, one trial a task elsewhere. The runs with GPT-5.4 are not in git."""
    for name, domain, file in TAU2:
        path = folder / "data/tau2/results/final" / file
        if not path.is_file():
            print(f"skipped: {name}, there is no {path}", file=sys.stderr)
            continue
        simulations = load(path)["simulations"]
        if domain == "retail":
            runs = [tau2_run(f"gpt-4.1-mini-{i:04}", each) for i, each in enumerate(simulations[:300])]
        else:
            first = [each for each in simulations if each["trial"] == 0][: 40 if domain == "telecom" else None]
            runs = [tau2_run(f"{name}-{each['task_id']}-0", each) for each in first]
        yield name, tau2_tools(folder / f"src/tau2/domains/{domain}/tools.py", domain), runs


def tau2_run(name: str, simulation: Json) -> Json:
    """Convert one run. What the user does with tools of their own is not shown to the agent, nor here."""
    kept = []
    for message in simulation["messages"]:
        calls = message.get("tool_calls") or []
        if message["role"] == "tool" and message.get("requestor", "assistant") == "assistant":
            plain = {"role": "tool", "tool_call_id": message["id"], "content": message.get("content") or ""}
            kept.append((message, {**plain, "status": "error"} if message.get("error") else plain))
        elif (
            message["role"] == "assistant" and kept
        ):  # the greeting in front of the first request is the same each time
            functions = [(each["id"], {"name": each["name"], "arguments": each["arguments"]}) for each in calls]
            written = [
                {"id": id_, "type": "function", "function": {**each, "arguments": json.dumps(each["arguments"])}}
                for id_, each in functions
            ]
            plain = {"role": "assistant", "content": message.get("content") or ""}
            kept.append((message, {**plain, "tool_calls": written} if written else plain))
        elif message["role"] == "user" and not calls:
            kept.append((message, {"role": "user", "content": message.get("content") or ""}))
    times = [datetime.fromisoformat(message["timestamp"]) for message, _ in kept]
    return {
        "id": name,
        "task": str(simulation["task_id"]),
        "success": (simulation.get("reward_info") or {}).get("reward") == 1,
        "messages": [plain for _, plain in kept],
        "times": [round((time - times[0]).total_seconds(), 3) for time in times],
    }


def tau2_tools(path: Path, domain: str) -> list[Json]:
    """Read the tools of a domain off its source: names, docstrings, annotations."""
    reads = side_effects()[domain]["reads"]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef) or "is_tool(" not in "".join(map(ast.unparse, node.decorator_list)):
            continue
        text = ast.get_docstring(node) or ""
        about = " ".join(re.split(r"\n\s*(?:Args|Returns|Raises):", text)[0].split())
        described = dict(re.findall(r"^\s+(\w+): (.+)$", text, re.MULTILINE))
        wanted = node.args.args[1:]
        properties = {
            each.arg: {**tau2_type(ast.unparse(each.annotation) if each.annotation else "str"),
                       "description": described.get(each.arg, "")}
            for each in wanted
        }  # fmt: skip
        required = [each.arg for each in wanted[: len(wanted) - len(node.args.defaults)]]
        tool = schema(node.name, about, properties, required)
        found.append({**tool, "annotations": {"readOnlyHint": node.name in reads}})
    return found


def tau2_type(annotation: str) -> Json:
    """Return the schema of an annotation; what is no plain type is an object."""
    if items := re.fullmatch(r"List\[(.+)\]", annotation):
        return {"type": "array", "items": {"type": TYPES[items[1]]} if items[1] in TYPES else {}}
    return {"type": TYPES.get(annotation, "object")}


# --- tau-bench: right calls, executed ---


def tau(folder: Path) -> Sets:
    """Convert tau-bench: the right calls of each task, executed on a fresh copy of the shop's or airline's data."""
    with program(folder, "litellm") as module:
        for domain in ("retail", "airline"):
            here = f"tau_bench.envs.{domain}"
            tools = {each.get_info()["function"]["name"]: each for each in module(f"{here}.tools").ALL_TOOLS}
            fresh = pickle.dumps(module(f"{here}.data").load_data())
            known: set[str] = set()
            runs = []
            for split in ("test", "dev", "train", "tasks"):
                name = f"{here}.tasks_{split}" if split != "tasks" else f"{here}.tasks"
                if not (folder / name.replace(".", "/")).with_suffix(".py").is_file():
                    continue
                found = module(name)
                tasks = next(value for key, value in vars(found).items() if key.lower().startswith("tasks"))
                for number, task in enumerate(tasks):
                    plain = task if isinstance(task, dict) else task.model_dump()
                    if plain["instruction"] in known:
                        continue
                    known.add(plain["instruction"])
                    if run := tau_run(plain, tools, pickle.loads(fresh)):
                        runs.append({"id": f"tau_{domain}_gold_{split}_{number:03}", **run})
            infos = by_name(each.get_info() for each in tools.values())
            yield f"tau_{domain}_gold", infos, sorted(runs, key=lambda run: str(run["id"]))


def tau_run(task: Json, tools: Json, data: Any) -> Json | None:
    """Execute a task's actions; None if there are none."""
    messages: list[Json] = [{"role": "user", "content": task["instruction"]}]
    for action in task["actions"]:
        name, args = action["name"], action.get("kwargs") or action.get("arguments") or {}
        if name == "respond":
            continue
        told = attempt(tools[name].invoke, data=data, **args)
        number = len(messages) // 2
        messages += exchange(number, name, args, str(told))
    return {"task": task["instruction"], "success": True, "messages": messages} if len(messages) > 1 else None


# --- WorkBench: GPT-4's runs and the right calls in a sandboxed office ---

DOMAINS: Final = (
    "analytics",
    "calendar",
    "customer_relationship_manager",
    "email",
    "multi_domain",
    "project_management",
)
OFFICE: Final = (*DOMAINS[:4], "project_management", "company_directory")
CASED: Final = ("status", "list_name", "board")


def workbench(folder: Path) -> Sets:
    """Convert WorkBench: its right calls, executed, and GPT-4's runs, judged by the state that they leave."""
    tools = by_name(tool for each in OFFICE for tool in workbench_tools(folder / f"src/tools/{each}.py"))
    with program(folder) as module:
        office = Office({each: module(f"src.tools.{each}") for each in OFFICE})
        gold = [run for domain in DOMAINS for run in workbench_gold(folder, domain, office)]
        yield "workbench_gold", tools, gold
        selections = [(selection, domain) for selection in ("all", "domains") for domain in DOMAINS]
        gpt4 = [run for selection, domain in selections for run in workbench_runs(folder, domain, selection, office)]
        yield "workbench_gpt4", tools, gpt4


class Office:
    """The sandbox's tools on tables that are as they were before each list of actions."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        import pandas  # type: ignore[import-untyped,unused-ignore]

        self.modules = modules
        self.tables = {
            (module, name): value
            for module in modules.values()
            for name, value in vars(module).items()
            if isinstance(value, pandas.DataFrame)
        }

    def act(self, actions: Sequence[str]) -> list[Any]:
        """Execute actions such as `email.send_email.func(recipient="x")` and return their results."""
        for (module, name), table in self.tables.items():
            setattr(module, name, table.copy())
        return [attempt(eval, action, dict(self.modules)) for action in actions]

    def state(self, actions: Sequence[str]) -> list[Any]:
        """Return the tables after the actions, in lower case where the benchmark compares so."""
        self.act(actions)
        tables = [getattr(module, name).copy() for module, name in self.tables]
        for table in tables:
            for column in set(table.select_dtypes(["object", "str"]).columns) - set(CASED):
                table[column] = table[column].str.lower()
        return tables

    def equal(self, one: Sequence[str], other: Sequence[str]) -> bool:
        """Return True if two lists of actions leave the same state."""
        return all(a.equals(b) for a, b in zip(self.state(one), self.state(other), strict=True))


def rows_of(path: Path) -> list[dict[str, str]]:
    """Read a table."""
    csv.field_size_limit(10_000_000)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def workbench_gold(folder: Path, domain: str, office: Office) -> Iterator[Json]:
    """Yield the right calls of a domain's queries."""
    answers = folder / f"data/processed/queries_and_answers/{domain}_queries_and_answers.csv"
    for number, row in enumerate(rows_of(answers)):
        actions = ast.literal_eval(row["answer"])
        messages: list[Json] = [{"role": "user", "content": row["query"]}]
        for at, (action, told) in enumerate(zip(actions, office.act(actions), strict=True)):
            name, args = parsed(action)
            messages += exchange(at, name.removesuffix(".func"), args, as_text(told))
        yield {
            "id": f"workbench_gold_{domain}_{number:03}",
            "task": row["query"],
            "success": True,
            "template": row["base_template"],
            "messages": messages,
        }


def workbench_runs(folder: Path, domain: str, selection: str, office: Office) -> Iterator[Json]:
    """Yield GPT-4's runs of a domain, with all tools in the prompt or those of the domain."""
    [results] = (folder / f"data/results/{domain}").glob(f"gpt-4_{selection}_*.csv")
    answers = rows_of(folder / f"data/processed/queries_and_answers/{domain}_queries_and_answers.csv")
    by_query = {row["query"]: number for number, row in enumerate(answers)}
    for number, row in enumerate(rows_of(results)):
        response: Json = {"intermediate_steps": [], "output": ""}
        if row["full_response"]:
            response = recorded(row["full_response"])
        right = by_query[row["query"]]
        messages: list[Json] = [{"role": "user", "content": row["query"]}]
        for at, (step, told) in enumerate(response["intermediate_steps"]):
            messages += exchange(at, step["tool"], step["tool_input"], as_text(told), step["log"])
        messages.append({"role": "assistant", "content": as_text(response["output"])})
        wanted = ast.literal_eval(answers[right]["answer"])
        made = [f"{step['tool']}.func(**{step['tool_input']!r})" for step, _ in response["intermediate_steps"]]
        yield {
            "id": f"workbench_gpt4_{selection}_{domain}_{number:03}",
            "task": row["query"],
            "success": not row["error"] and office.equal(made, wanted),
            "template": answers[right]["base_template"],
            "gold_id": f"workbench_gold_{domain}_{right:03}",
            "messages": messages,
        }


class _Plain(ast.NodeTransformer):
    """Rewrites the representation of a recorded response as literals."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Write `AgentAction(...)` as a dict of its arguments, `array(...)` as its list."""
        self.generic_visit(node)
        if node.keywords and not node.args:
            return ast.Dict([ast.Constant(each.arg) for each in node.keywords], [each.value for each in node.keywords])
        return node.args[0]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Write `nan` as None."""
        return ast.Constant(None)


def recorded(text: str) -> Json:
    """Read the representation of a response that a run recorded."""
    found: Json = ast.literal_eval(_Plain().visit(ast.parse(text, mode="eval")))
    return found


def as_text(value: Any) -> str:
    """Return a result as the text that a model reads."""
    if isinstance(value, str):
        return value
    return json.dumps(value.tolist() if hasattr(value, "tolist") else value, ensure_ascii=False)


def workbench_tools(path: Path) -> Iterator[Json]:
    """Read tools off the source of a toolkit: decorators, defaults, docstrings in numpy's style."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.FunctionDef) or not node.decorator_list:
            continue
        decorator = node.decorator_list[0]
        assert isinstance(decorator, ast.Call)
        sections = re.split(r"\n(\w+)\n-+\n", ast.get_docstring(node) or "")
        parts = dict(zip(sections[1::2], sections[2::2], strict=True))
        properties = {}
        for name, type_, text in documented(parts.get("Parameters", "")):
            properties[name] = {"type": TYPES.get(type_, "string"), "description": text}
        for arg, default in zip(node.args.args, node.args.defaults, strict=True):
            if (value := ast.literal_eval(default)) is not None:
                properties[arg.arg]["default"] = value
        given = [{"type": TYPES.get(type_, "string"), "description": f"{name}: {text}"}
                 for name, type_, text in documented(parts.get("Returns", ""))]  # fmt: skip
        name = ast.literal_eval(decorator.args[0])
        yield schema(name, sections[0].strip(), properties, [], returns=given[0] if given else None)


def documented(text: str) -> list[tuple[str, str, str]]:
    """Return (name, type, description) of the entries of a section."""
    found = re.findall(r"^(\S+?) ?: (\w+).*\n((?:[ \t]+.*\n?)+)", text, re.MULTILINE)
    return [(name, type_, " ".join(about.split())) for name, type_, about in found]


# --- BFCL: right calls over eight simulated APIs, executed ---

BFCL: Final = "berkeley-function-call-leaderboard"


def bfcl(folder: Path) -> Sets:
    """Convert the multi-turn set of BFCL: its right calls, executed on its own classes."""
    data = folder / BFCL / "bfcl_eval/data"
    queries = lines_of(data / "BFCL_v4_multi_turn_base.json")
    right = {
        each["id"]: each["ground_truth"] for each in lines_of(data / "possible_answer/BFCL_v4_multi_turn_base.json")
    }
    with program(folder / BFCL) as module:
        config = module("bfcl_eval.constants.executable_backend_config")
        kinds = sorted({kind for query in queries for kind in query["involved_classes"]})
        documents = {
            kind: lines_of(data / "multi_turn_func_doc" / config.MULTI_TURN_FUNC_DOC_FILE_MAPPING[kind])
            for kind in kinds
        }
        classes = {kind: getattr(module(config.CLASS_FILE_PATH_MAPPING[kind]), kind) for kind in kinds}
        tools = [bfcl_tool(doc, kind) for kind, docs in documents.items() for doc in docs]
        names = {each["function"]["name"]: list(each["function"]["parameters"]["properties"]) for each in tools}
        runs = [bfcl_run(query, right[query["id"]], classes, names) for query in queries]
    yield "bfcl_v3_multi_turn", by_name(tools), runs


def bfcl_tool(document: Json, toolkit: str) -> Json:
    """Return the schema of a documented function."""
    plain = standard_types(document)
    parameters = plain["parameters"]
    return schema(
        plain["name"],
        plain["description"],
        parameters["properties"],
        parameters.get("required", ()),
        returns=plain.get("response"),
        toolkit=toolkit,
    )


def standard_types(value: Any) -> Any:
    """Return a schema with the types of JSON Schema in place of Python's."""
    if isinstance(value, list):
        return [standard_types(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {key: standard_types(each) for key, each in value.items()}
    if isinstance(value.get("type"), str):
        plain["type"] = TYPES.get(value["type"], value["type"])
    return plain


def bfcl_run(query: Json, right: list[list[str]], classes: Json, names: dict[str, list[str]]) -> Json:
    """Execute the right calls of a query, turn by turn."""
    objects = {}
    for kind in query["involved_classes"]:
        objects[kind] = classes[kind]()
        if hasattr(objects[kind], "_load_scenario"):
            config = pickle.loads(pickle.dumps(query["initial_config"].get(kind, {})))
            objects[kind]._load_scenario(config)  # noqa: SLF001 - the way to load it
    messages: list[Json] = []
    number = 0
    for asked, actions in zip(query["question"], right, strict=True):
        messages += [{"role": "user", "content": each["content"]} for each in asked]
        for action in actions:
            name, args = parsed(action, names)
            owner = next(each for each in objects.values() if hasattr(each, name))
            told = attempt(getattr(owner, name), **args)
            written = attempt(json.dumps, told) if isinstance(told, dict) else str(told)
            messages += exchange(number, name, args, str(told) if written.startswith("Error") else written)
            number += 1
        if not actions:
            messages.append({"role": "assistant", "content": "[no tool call in this turn]"})
    return {
        "id": f"bfcl_{query['id']}",
        "task": "\n".join(message["content"] for message in messages if message["role"] == "user"),
        "success": True,
        "messages": messages,
    }


# --- NESTFUL: nested calls and their data flow ---

NESTFUL: Final = (("executable", "executable/executable"), ("glaive", "non-executable/non-executable-glaive"),
                  ("sgd", "non-executable/non-executable-sgd"))  # fmt: skip


def nestful(folder: Path) -> Sets:
    """Convert NESTFUL: queries with nested calls, and which output feeds which input. It records no outputs."""
    tools: dict[str, Json] = {}
    for group, path in NESTFUL:
        for spec in load(folder / f"data/{path}-spec.json"):
            tools.setdefault(spec["name"], nestful_tool(spec, group))
    queries = [
        nestful_query(f"nestful_{group}_{number:03}", group, each)
        for group, path in NESTFUL
        for number, each in enumerate(load(folder / f"data/{path}-data.json"))
    ]
    yield "nestful", by_name(tools.values()), queries


def nestful_tool(spec: Json, group: str) -> Json:
    """Return the schema of a tool; the three files name the parts of a tool differently."""

    def plain(entry: Json) -> Json:
        type_ = str(entry.get("type", "string")).lower()
        known = type_ in {"boolean", "number", "integer", "object", "array"}
        found: Json = {
            "type": type_ if known else TYPES.get(type_, "string"),
            "description": entry.get("description", ""),
        }
        values = entry.get("allowed_values") or entry.get("possible_values") or entry.get("enum")
        if values and isinstance(values, list):
            found["enum"] = values
        if (default := entry.get("default_value", entry.get("default"))) is not None:
            found["default"] = default
        if "properties" in entry:
            found["properties"] = {
                name: plain(each if isinstance(each, dict) else {"description": each})
                for name, each in entry["properties"].items()
            }
        if isinstance(entry.get("items"), dict):
            found["items"] = plain(entry["items"])
        return found

    given: Json = {}
    for part in ("path_parameters", "query_parameters", "parameters", "arguments"):
        given |= spec.get(part) or {}
    required = [name for name, entry in given.items() if entry.get("required")]
    outputs = {name: plain(entry) for name, entry in (spec.get("output_parameters") or {}).items()}
    return schema(
        spec["name"],
        spec["description"],
        {name: plain(entry) for name, entry in given.items()},
        required,
        returns={"type": "object", "properties": outputs} if outputs else None,
        toolkit=group,
    )


def nestful_query(id_: str, group: str, query: Json) -> Json:
    """Return a query with the edges of its data flow."""
    calls = [each for each in query["output"] if each["name"] != "var_result"]
    edges = []
    numbers: dict[str, int] = {}
    for number, each in enumerate(calls):
        for param, value in each["arguments"].items():
            for label, output in re.findall(r"\$(\w+)\.([^$]+)\$", json.dumps(value, ensure_ascii=False)):
                if label in numbers:
                    edges.append({"from": numbers[label], "output": output, "to": number, "param": param})
        numbers[each.get("label")] = number
    relevant = list(dict.fromkeys(each["name"] for each in calls))
    return {"id": id_, "group": group, "query": query["input"], "relevant": relevant, "calls": calls, "edges": edges}


# --- StableToolBench: a catalogue of real APIs, and queries ---


def toolbench(folder: Path) -> Sets:
    """Convert StableToolBench: its APIs and which of them a query needs. It records no runs that are used here."""
    groups = {path.stem: load(path) for path in sorted((folder / "solvable_queries/test_instruction").glob("*.json"))}
    apis: dict[tuple[str, str, str], Json] = {}
    for api in (api for queries in groups.values() for query in queries for api in query["api_list"]):
        known = apis.setdefault(identity(api), api)
        if not known.get("template_response") and api.get("template_response"):
            apis[identity(api)] = api
    names: dict[tuple[str, str, str], str] = {}
    for key, api in sorted(apis.items(), key=lambda item: item[0]):
        mark = hashlib.sha1("|".join(key).encode()).hexdigest()[:6]
        name = standard_name(api)
        names[key] = f"{name}_{mark}"[-64:] if name in names.values() else name
    tools = [toolbench_tool(names[key], api) for key, api in apis.items()]
    rows = []
    for group, queries in groups.items():
        for query in queries:
            here = {identity(api)[1:]: names[identity(api)] for api in query["api_list"]}
            relevant = dict.fromkeys(here[tuple(each)] for each in query["relevant APIs"] if tuple(each) in here)
            id_ = f"{group}_{query['query_id']}"
            rows.append({"id": id_, "group": group, "query": query["query"], "relevant": list(relevant)})
    yield "toolbench_catalog", by_name(tools), rows


def identity(api: Json) -> tuple[str, str, str]:
    """Return the category, the tool and the name of an API."""
    return api["category_name"], api["tool_name"], api["api_name"]


def standard_name(api: Json) -> str:
    """Return the name that ToolBench gives an API; several APIs may have it."""
    return f"{standard(api['api_name'])}_for_{standard(api['tool_name'], keywords=())}"[-64:]


def standard(text: str, keywords: Iterable[str] = ("from", "class", "return", "false", "true", "id", "and")) -> str:
    """Write a name as ToolBench does."""
    found = re.sub(r"_+", "_", re.sub(r"[^\u4e00-\u9fa5^a-zA-Z0-9_]", "_", text)).lower().strip("_")
    found = f"get_{found}" if found[:1].isdigit() else found
    return f"is_{found}" if found in keywords else found


def toolbench_tool(name: str, api: Json) -> Json:
    """Return the schema of an API."""
    types = {"number": "number", "boolean": "boolean", "array": "array", "object": "object"}
    properties: Json = {}
    for entry in [*api["required_parameters"], *api["optional_parameters"]]:
        type_ = str(entry.get("type"))
        about = entry.get("description") or ""
        if type_.lower() not in {*types, "string", "enum"}:
            about = f"{about} ({type_})".strip()
        found = {"type": types.get(type_.lower(), "string"), "description": about}
        if entry.get("default") not in (None, ""):
            found["default"] = entry["default"]
        properties.setdefault(standard(entry["name"]), found)
    required = list(dict.fromkeys(standard(entry["name"]) for entry in api["required_parameters"]))
    returns = template_schema(api.get("template_response") or None)
    return schema(
        name, api["api_description"] or "", properties, required, returns=returns,
        category=api["category_name"], toolkit=api["tool_name"], api_name=api["api_name"], method=api["method"],
    )  # fmt: skip


def template_schema(template: Any) -> Json | None:
    """Return the schema of a response's template; None for one that was cut."""
    if isinstance(template, dict):
        found = {name: template_schema(each) for name, each in template.items() if name != "_list_length"}
        return {"type": "object", "properties": {name: each for name, each in found.items() if each}}
    if isinstance(template, list):
        items = template_schema(template[0]) if template else None
        if items and isinstance(template[0], str) and items["type"] == "array":
            return items
        return {"type": "array", "items": items} if items else {"type": "array"}
    if template == "empty list":
        return {"type": "array"}
    if listed := re.fullmatch(r"list of (\w+) with length \d+", str(template)):
        return {"type": "array", "items": {"type": TYPES[listed[1]]}}
    return {"type": TYPES[template]} if template in TYPES else None


# --- STATE-Bench: recorded runs of a model on three desks ---

STATE_RUNS: Final = "datasets/train_task_trajectories"
STATE_DOMAINS: Final = ("customer_support", "shopping_assistant", "travel")


def state(folder: Path) -> Sets:
    """Convert STATE-Bench's train trajectories, one run a task; the days in its prompts are redacted."""
    with program(folder) as module:
        for domain in STATE_DOMAINS:
            files = sorted((folder / STATE_RUNS / domain).glob("*.json"), key=lambda file: int(file.stem.split("-")[0]))
            runs = [state_run(file.stem, load(file)["conversation"]) for file in files]
            tools = [
                schema(
                    tool["name"],
                    tool["description"],
                    tool["parameters"]["properties"],
                    tool["parameters"].get("required", ()),
                )
                for tool in module(f"state_bench.domains.{domain}.tools").TOOL_SCHEMAS
            ]
            yield f"state_{domain}", tools, runs


def state_run(name: str, conversation: list[Json]) -> Json:
    """Convert one run. A turn lists its calls without rounds: each is taken for a round of its own."""
    messages: list[Json] = []
    for message in conversation:
        for number, called in enumerate(message.get("tool_calls") or []):
            id_ = f"call_{len(messages)}_{number}"
            function = {"name": called["name"], "arguments": json.dumps(called["arguments"])}
            call = {"id": id_, "type": "function", "function": function}
            result = {"role": "tool", "tool_call_id": id_, "content": json.dumps(called["result"])}
            if isinstance(called["result"], dict) and called["result"].get("error"):
                result["status"] = "error"
            messages += [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
        if message["content"]:
            messages.append({"role": message["role"], "content": message["content"]})
    return {"id": name, "task": name, "messages": messages}


# --- all of them ---

HOST: Final = "https://github.com/"
SOURCES: Final = {
    "tau2": Source("sierra-research/tau2-bench", "a2c024725189473d2d7cea3a5cfdbcc67478e41f",
                   ["data/tau2/results/final", "src/tau2/domains"], tau2),
    "tau": Source("sierra-research/tau-bench", "59a200c6d575d595120f1cb70fea53cef0632f6b", ["tau_bench"], tau),
    "workbench": Source("olly-styles/WorkBench", "42f1b6dc18986f47701ca83de2d63dd4f95c59a0",
                        ["data", "src"], workbench),
    "bfcl": Source("ShishirPatil/gorilla", "6ea57973c7a6097fd7c5915698c54c17c5b1b6c8", [BFCL + "/bfcl_eval"], bfcl),
    "nestful": Source("IBM/NESTFUL", "053cbde0446dddd31e8293f179085e1b39ab79b5", ["data"], nestful),
    "toolbench": Source("THUNLP-MT/StableToolBench", "aa4ed9f4737ad98bd706663f01d63623c3427812",
                        ["solvable_queries"], toolbench),
    "state": Source("microsoft/STATE-Bench", "5644b1838d96bc4483da29642d058ecaa6f80f7f",
                    [STATE_RUNS, "state_bench/domains"], state),
}  # fmt: skip


def side_effects() -> dict[str, Json]:
    """Return which tools of each domain only read, and which destroy."""
    found: dict[str, Json] = load(Path(__file__).with_name("side_effects.json"))
    return found


def side_effects_of(name: str, tools: Iterable[Json]) -> Json | None:
    """Return the tools of a set by what they do; None for a catalogue, of which nothing is said."""
    known = next((known for domain, known in side_effects().items() if domain in name), None)
    if known is None:
        return None
    names = sorted(tool["function"]["name"] for tool in tools)
    found = {kind: [each for each in names if each in known[kind]] for kind in ("reads", "destructive")}
    return {**found, "changes": [each for each in names if each not in found["reads"]]}


def fetch(source: Source, into: Path) -> Path:
    """Check out the folders of a source at its commit."""
    folder = into / source.repository.rpartition("/")[2]
    folder.mkdir(parents=True)

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(folder), *arguments], check=True, stdout=subprocess.DEVNULL)

    git("init", "--quiet")
    git("remote", "add", "origin", HOST + source.repository)
    git("fetch", "--quiet", "--depth", "1", "--filter=blob:none", "origin", source.commit)
    git("sparse-checkout", "set", *source.folders)
    git("checkout", "--quiet", "FETCH_HEAD")
    return folder


def write(into: Path, name: str, tools: list[Json], rows: list[Json]) -> None:
    """Write a set: tools, runs or queries, and what its tools do."""
    folder = into / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tools.json").write_text(json.dumps(tools, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    file = "trajectories.jsonl" if rows and "messages" in rows[0] else "queries.jsonl"
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / file).write_text(text, encoding="utf-8")
    if nature := side_effects_of(name, tools):
        (folder / "nature.json").write_text(json.dumps(nature, indent=1) + "\n", encoding="utf-8")
    calls = sum(len(message.get("tool_calls", ())) for row in rows for message in row.get("messages", ()))
    print(f"{name}: {len(tools)} tools, {len(rows)} rows, {calls} calls")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch and convert; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=Path("../shared/data"), help="where the benchmarks look")
    parser.add_argument("--from", dest="given", type=Path, help="a folder with checkouts, named as their repositories")
    parser.add_argument("--sets", nargs="*", choices=SOURCES, default=list(SOURCES), help="the sources")
    options = parser.parse_args(arguments)
    failed = []
    into = options.into.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.sets:
            source = SOURCES[name]
            try:
                given = options.given and options.given.resolve() / source.repository.rpartition("/")[2]
                folder = given if given and given.is_dir() else fetch(source, Path(scratch))
                for converted in source.convert(folder):
                    write(into, *converted)
            except (OSError, subprocess.CalledProcessError, ModuleNotFoundError) as error:
                failed.append(name)
                print(f"failed: {name}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
