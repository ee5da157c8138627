"""Writes tests/fixtures/openings/: tables of spellings of paths and URLs, and what real programs opened by them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS))

from harness import openers  # noqa: E402

# -- paths: {base} is the directory that holds repo, outside and home ----------------------------------------------

PLAIN = """a.txt ./a.txt sub/b.txt sub/deep/c.txt sub//b.txt sub/./b.txt .//a.txt {base}/repo/a.txt
{base}/repo/sub/b.txt {base}//repo///a.txt {base}/./repo/a.txt .hidden/x.txt inner.txt in/c.txt self/a.txt
self/self/sub/b.txt UPPER/u.txt {base}/alias/a.txt {base}/home/repo/a.txt {base}/outside/back/a.txt sub/out.d/z.txt"""
TRICKS = """../outside/s.txt ../s.txt ../../s.txt .. ../ . / ./. sub/.. sub/../a.txt sub/../../outside/s.txt
sub/deep/../../a.txt sub/deep/../../../outside/s.txt ../repo/a.txt ../repo/../outside/s.txt ../repo2/s.txt
../repository/s.txt {base}/repo2/s.txt {base}/repository/s.txt {base}/outside/s.txt {base}/outside/../repo/a.txt
{base}/repo/../outside/s.txt {base}/repo/sub/../../outside/s.txt {base}/repo/./../outside//s.txt
//{base}/outside/s.txt ///{base}/repo/a.txt out/s.txt out/../a.txt out/../s.txt out/../outside/s.txt
out/../repo/a.txt out/deep/d.txt out/back/a.txt out/back/out/s.txt abs/s.txt abs/../a.txt abs/../s.txt up/s.txt
up/outside/s.txt up/repo/a.txt up/../a.txt up/repo/../a.txt up/home/h.txt deep/d.txt deep/../s.txt deep/../a.txt
deep/../../a.txt deep/../../repo/a.txt deep/../../s.txt deep/../deep/d.txt in/../b.txt in/../a.txt in/../../a.txt
in/../../../outside/s.txt leaf leaf/ leaf/. leaf/../a.txt inner.txt/ inner.txt/../a.txt chain/s.txt chain/../s.txt
chain/../a.txt chain2/a.txt slash/etc/hostname slash{base}/repo/a.txt slash/..{base}/outside/s.txt homely/h.txt
homely/repo/a.txt homely/../a.txt homely/out/s.txt loop loop/a.txt loop/../a.txt none/../a.txt
none/../../outside/s.txt a.txt/../sub/b.txt a.txt/.. a.txt/. a.txt/ a.txt/x sub/b.txt/../../../outside/s.txt dangling
{base}/alias/out/s.txt {base}/alias/../outside/s.txt {base}/alias/../repo/a.txt {base}/home/repo/out/s.txt
{base}/home/repo/../s.txt {base}/home/repo/../h.txt {base}/outside/back/../s.txt {base}/outside/back/../a.txt
self/../a.txt self/../s.txt self/out/s.txt self/up/s.txt ... .../dots.txt ..../a.txt .../../a.txt ....//outside/s.txt
..;/outside/s.txt {base}/REPO/a.txt REPO/a.txt upper/u.txt A.TXT {base}/Repo/sub/b.txt ~ ~/ ~/h.txt
~/../outside/s.txt ~/repo/a.txt ~/repo/../s.txt ~/repo/../h.txt ~/out/s.txt ~/t.txt ./~/t.txt ~//h.txt ~/sub/b.txt
~root/x ~nobody-here/x ~+ ~- sub/~/h.txt ~/repo/out/s.txt $HOME/h.txt ${HOME}/h.txt $HOME/../outside/s.txt
$WORK/s.txt ${WORK}/a.txt $WORK/../repo/a.txt $NOPE/a.txt $ $/a.txt ${/a.txt sub/$WORK %HOME%/h.txt ./$HOME/h.txt
file://{base}/repo/a.txt file://{base}/outside/s.txt file:{base}/repo/a.txt file:{base}/outside/s.txt
FILE://{base}/outside/s.txt File://{base}/repo/sub/b.txt file://localhost{base}/repo/a.txt
file://localhost{base}/outside/s.txt file://LOCALHOST{base}/outside/s.txt file://127.0.0.1{base}/outside/s.txt
file://evil.test{base}/outside/s.txt file://evil.test{base}/repo/a.txt file:////{base}/outside/s.txt
file://///{base}/repo/a.txt file:a.txt file:../outside/s.txt file:./a.txt file://a.txt file://../outside/s.txt
file://sub/b.txt file:///../{base}/outside/s.txt file://{base}/repo/../outside/s.txt
file://{base}/repo/%2e%2e/outside/s.txt file://{base}/repo/%2E%2E/outside/s.txt file://{base}/repo/.%2e/outside/s.txt
file://{base}/repo%2F..%2Foutside%2Fs.txt file://{base}/repo/sub%2fb.txt file://{base}/repo/a%2etxt
file://{base}/repo/a%252etxt file://{base}/repo/..\\outside\\s.txt file:\\\\{base}\\outside\\s.txt
file://{base}\\outside\\s.txt file:/\\{base}/outside/s.txt file://{base}/repo/a.txt?x file://{base}/repo/a.txt#x
file://{base}/outside/s.txt?/../../repo/a.txt file://{base}/outside/s.txt#/../../repo/a.txt
file://{base}/repo/a%3Fb.txt file://{base}/repo/a?b.txt file://%6cocalhost{base}/outside/s.txt
file://{base}/repo/out/s.txt file://{base}/repo/out/../a.txt file://{base}/repo/out/../s.txt file:q.txt file:/q.txt
file://{base}/repo/a%00.txt file://localhost/l.txt localhost/l.txt %2e%2e/outside/s.txt %2e%2e/p.txt
%2E%2E/outside/s.txt ..%2foutside%2fs.txt ..%2Foutside/s.txt %2e%2e%2foutside%2fs.txt .%2e/outside/s.txt
%252e%252e/outside/s.txt %25252e/x sub%2fb.txt a%2etxt %61.txt a%20b.txt out%2fs.txt %2fetc%2fhostname
..%5coutside%5cs.txt %7e/h.txt a.txt%00 ..%c0%afoutside/s.txt %c0%ae%c0%ae/outside/s.txt %zz/a.txt a% % %2 a%2
%u002e%u002e/s.txt {base}%2Foutside%2Fs.txt {base}/repo/%2e%2e/outside/s.txt {base}/repo/..%2f..%2foutside/s.txt
..\\outside\\s.txt sub\\b.txt ..\\..\\s.txt sub\\..\\..\\outside\\s.txt .\\a.txt \\etc\\hostname C:\\outside\\s.txt
C:/outside/s.txt \\\\host\\share {base}\\outside\\s.txt sub/..\\../outside/s.txt é.txt e\u0301.txt
{base}/outside/é.txt ../outside/e\u0301.txt out/é.txt élink/s.txt e\u0301link/s.txt ．．/outside/s.txt ․․/outside/s.txt
‥/outside/s.txt sub∕b.txt ⁄etc⁄hostname ..／outside／s.txt \u202ea.txt \u200b../outside/s.txt
../outside/s.txt?/../../repo/a.txt ../outside/s.txt#/../../repo/a.txt out/s.txt?x a.txt?x sub/../out/s.txt;x
//outside/s.txt //localhost{base}/outside/s.txt a.txt;/../../outside/s.txt leaf;x leaf?x leaf#x
http://x/../../outside/s.txt vscode://{base}/outside/s.txt repo:a.txt a.txt:b data:,a.txt"""
ODD = [
    "",
    " ",
    "a b.txt",
    " a.txt",
    "a.txt ",
    " a.txt ",
    " ../outside/s.txt",
    "../outside/s.txt ",
    "\t../outside/s.txt",
    "../outside/s.txt\n",
    "\n{base}/outside/s.txt",
    "new\nline.txt",
    "sub/\nb.txt",
    "..\n/outside/s.txt",
    ".\t./outside/s.txt",
    "../outside/ s.txt",
    '"a.txt"',
    "'a.txt'",
    '"../outside/s.txt"',
    "'{base}/outside/s.txt'",
    "`a.txt`",
    "<a.txt>",
    "a.txt\0",
    "../outside/s.txt\0",
    "../outside/s.txt\0/../../repo/a.txt",
    "a.txt\0/../../outside/s.txt",
    "\0",
    "sub\0/b.txt",
    " file://{base}/outside/s.txt",
    "fi\nle://{base}/outside/s.txt",
    "file://{base}/out\tside/s.txt",
    "\x01file://{base}/outside/s.txt",
    "\u00a0../outside/s.txt",
    "\ufeff../outside/s.txt",
    "\u3000a.txt",
    "\x1f../outside/s.txt",
    "\x7f",
    "\x1b[0m",
    "a/" * 30 + "../" * 30 + "a.txt",
    "sub/../" * 40 + "a.txt",
    "sub/../" * 40 + "../outside/s.txt",
    "./" * 100 + "a.txt",
    "/" * 100 + "{base}/outside/s.txt",
    "out/back/" * 15 + "a.txt",
    "out/back/" * 30 + "a.txt",
    "x" * 300,
    "x/" * 200 + "x",
]
NEW = """new.txt ./new.txt sub/new.txt sub/../new.txt {base}/repo/new.txt ../new.txt ../outside/new.txt
{base}/outside/new.txt out/new.txt out/../new.txt deep/new.txt deep/../new.txt deep/../../new.txt in/new.txt
in/../new.txt up/new.txt up/repo/new.txt dangling abs/new.txt chain/new.txt chain/../new.txt homely/new.txt
homely/repo/new.txt leaf inner.txt none/new.txt none/../new.txt sub/none/../../../outside/new.txt self/new.txt
self/../new.txt slash{base}/outside/new.txt ~/new.txt ~/repo/new.txt ~/../outside/new.txt $WORK/new.txt
file://{base}/repo/new.txt file://{base}/outside/new.txt file:new.txt %2e%2e/new.txt ..%2fnew.txt sub%2fnew.txt
..\\new.txt sub\\new.txt {base}/alias/new.txt {base}/alias/../new.txt {base}/home/repo/../new.txt é-new.txt
e\u0301link/new.txt élink/new.txt a.txt/new.txt loop/new.txt {base}/REPO/new.txt sub//new.txt out/back/new.txt
new.txt/ new.txt/."""


def path_spellings() -> list[tuple[str, str]]:
    reads = [("read", path) for path in (*PLAIN.split(), *TRICKS.split(), *ODD)]
    return list(dict.fromkeys([*reads, *(("write", path) for path in NEW.split())]))


def record_paths() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as base, ExitStack() as open_ones:
        tree = openers.Tree(Path(base))
        node = open_ones.enter_context(openers.path_opener(tree, "node"))
        python = open_ones.enter_context(openers.path_opener(tree, "python"))
        given = open_ones.enter_context(openers.filesystem(tree, tree.repo, tree.base))
        elsewhere = open_ones.enter_context(openers.filesystem(tree, tree.base))
        rows = []
        for op, spelling in path_spellings():
            path = tree.spelled(spelling)
            found = {f"node {way}": node(way, op, path) for way in openers.NODE_WAYS}
            found |= {f"python {way}": python(way, op, path) for way in openers.PYTHON_WAYS}
            found |= {"filesystem": given(op, path), "filesystem of base": elsewhere(op, path)}
            opened = {who: what for who, what in found.items() if what is not None}
            rows.append({"op": op, "path": spelling, "plain": spelling in PLAIN.split(), "opened": opened})
        return rows


# -- URLs ----------------------------------------------------------------------------------------------------------

HOSTS = """good.test GOOD.test good.test. good.test.. good.test:80 good.test:8080 good.test: evil.test sub.good.test
a.b.good.test notgood.test good.test.evil.test evil.test.good.test user@good.test user:pw@good.test
good.test@evil.test good.test:80@evil.test evil.test@good.test good.test@evil.test@good.test good.test%40evil.test
good.test%2f@evil.test good.test%2eevil.test g%6fod.test good%2etest good.test%00.evil.test good.test%20.evil.test
good.test%23.evil.test good.test\\@evil.test good.test\\.evil.test evil.test\\@good.test evil.test\\good.test
good.test#@evil.test good.test?@evil.test evil.test#@good.test evil.test?@good.test evil.test/@good.test
good.test:80:evil.test good.test:evil.test good.test:80abc good.test:99999 .good.test good..test good_test.good.test
-good.test xn--bcher-kva.test bücher.test BÜCHER.test bu\u0308cher.test faß.test fass.test ｇｏｏｄ.test good。test
good．test good｡test goo\u00add.test go\u200bod.test good\u2060.test ①.good.test good.tes\u017f\u0074 ℊood.test
K.good.test \u0131.good.test İ.good.test good.test;evil.test good.test,evil.test good.test&evil.test
good.test|evil.test good.test'evil.test good.test(evil.test good.test*evil.test good.test^evil.test
good.test`evil.test good.test~evil.test {good,evil}.test [good].test good.test[1-2] good.test=evil.test $evil.test
localhost LOCALHOST localhost. localhost:80 api.localhost localhost.evil.test 127.0.0.1 127.0.0.1. 127.1 127.0.1
127.000.000.001 0177.0.0.1 0x7f.0.0.1 0x7f.1 0x7f000001 0X7F000001 2130706433 017700000001 0x7F.0.0x0.1
127.0.0.1.evil.test 127.0.0.1@evil.test 010.0.0.1 10.0.0.1 0xa.1 167772161 192.168.1.1 0300.0250.1.1 3232235777
172.16.0.1 172.32.0.1 169.254.169.254 2852039166 0xa9fea9fe 0251.0376.0251.0376 169.254.43518 100.64.0.1 0 0.0.0.0
0x0 1.2.3.4 0x1020304 256.256.256.256 4294967296 4294967295 127.0.0.1.1 1.2.3 1.2.3.4.5 08.0.0.1 0x.1 127.0.0.0x
1.2.3.09 ①②⑦.0.0.1 １２７.0.0.1 127。0。0。1 [::1] [::1]:80 [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1]
[::127.0.0.1] [::] [fe80::1] [fe80::1%25eth0] [fe80::1%eth0] [fd00::1] [fc00::1] [fec0::1] [2001:db8::1]
[64:ff9b::7f00:1] [2002:7f00:1::] [::ffff:10.0.0.1] [::FFFF:A9FE:A9FE] [0000::1] [::1 [::1]evil.test [::1]@evil.test
[v1.x] [127.0.0.1] ::1"""
WRAPS = [
    "https://{}/p",
    "HTTP://{}/",
    "http://{}",
    "http:{}",
    "http:/{}/",
    "http:///{}/",
    "http:\\\\{}/",
    "http:/\\{}/",
    "{}",
    "{}/p",
    "//{}/p",
    "http://{}?q=http://evil.test/",
    "http://{}#@evil.test/",
    " http://{}/ ",
    "http://u:p@{}/",
    "<http://{}/>",
    "URL:http://{}/",
    "ws://{}/",
    "http://{}:8080/../..//evil.test",
    "\\\\{}\\p",
    "http://\t{}/",
    "ht\ntp://{}/",
    "http://{}\\evil.test/",
    "view-source:http://{}/",
]
WHOLE = [
    "",
    " ",
    "/",
    "/p",
    "?q",
    "#f",
    "http://",
    "http:",
    "https:///",
    "http:///p",
    "http://?q",
    "http://#f",
    "http://@/",
    "http://:80/",
    "mailto:a@good.test",
    "data:text/plain,good.test",
    "javascript:alert(1)",
    "about:blank",
    "file:///etc/hostname",
    "git@good.test:org/repo.git",
    "ssh://git@good.test/x",
    "git+https://good.test/x",
    "blob:http://good.test/1",
    "http://good.test\n.evil.test/",
    "http://good.test\t.evil.test/",
    "http://good.test .evil.test/",
    "http://good.test\r\nHost: evil.test/",
    "http://evil.test\0.good.test/",
    "http://good.test\x7f/",
    "http://good.test/\n@evil.test",
    "http://good\u3002test\uff0fevil.test/",
    "http://good.test\uff0f@evil.test/",
    "http://evil.test\uff03@good.test/",
    "http://evil.test\u2044good.test/",
    "http://good.test\uff20evil.test/",
    "http://good.test\uff1a80@evil.test/",
    "http://evil.test\ufe56@good.test/",
    "http://good.test\u2488evil.test/",
    "http://\ud800.test/",
    "http://good.test@evil.test:80@good.test/",
    "http://good.test://evil.test/",
    "http://http://good.test/",
    "http:good.test@evil.test",
    "http://good.test%5c@evil.test/",
    "http://good.test%252f@evil.test/",
    "http://%67%6f%6f%64.test/",
    "http://%E3%80%82good.test/",
    "http://1.1.1.1 &@2.2.2.2# @3.3.3.3/",
    "http://127.0.0.1:80\\@good.test/",
    "http://good.test:80#@evil.test:80/",
    "http://good.test:80?@evil.test/",
    "http://good.test&@evil.test# @good.test/",
    "http://0x7f.0.0.1#.good.test",
    "http://" + "a" * 64 + ".good.test/",
    "http://" + "a." * 130 + "good.test/",
    "http://good.test/" + "a" * 3000,
    "//evil.test\\@good.test",
    "///evil.test/",
    "/\\evil.test/",
    "\\/evil.test/",
    "http:/evil.test@good.test/",
]


def url_spellings() -> list[str]:
    hosts = HOSTS.split()
    urls = [f"http://{host}/" for host in hosts]
    for wrap in WRAPS:
        urls += [wrap.replace("{}", host) for host in ("good.test", "good.test@evil.test", "0x7f.1")]
    return list(dict.fromkeys([*urls, *WHOLE]))


def record_urls() -> list[dict[str, Any]]:
    proxy = openers.Proxy()
    with ExitStack() as open_ones:
        programs = (*openers.PYTHON_LIBRARIES, "curl", "undici", "fetch")
        asked = {name: open_ones.enter_context(openers.url_opener(proxy, name)) for name in programs}
        rows = []
        for url in url_spellings():
            found = {name: opener(url) for name, opener in asked.items()}
            rows.append({"url": url, "opened": {who: host for who, host in found.items() if host is not None}})
    proxy.close()
    return rows


def versions() -> dict[str, str]:
    def said(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]

    packages = {**json.loads(openers.PACKAGE_JSON)["dependencies"], **dict([openers.REQUIREMENTS.strip().split("==")])}
    libraries = {name: version(name) for name in ("requests", "httpx2")}
    programs = {"node": said("node", "--version"), "curl": " ".join(said("curl", "--version").split()[:2])}
    return {**packages, **libraries, **programs, "python": ".".join(map(str, sys.version_info[:2]))}


def write(name: str, rows: list[dict[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(row) for row in rows)
    target = TESTS / "fixtures" / "openings" / name
    target.parent.mkdir(exist_ok=True)
    target.write_text(f'{{"versions": {json.dumps(versions())},\n"spellings": [\n{lines}\n]}}\n')
    print(f"{name}: {len(rows)} spellings, {sum(bool(row['opened']) for row in rows)} opened by some program")


def main() -> None:
    openers.install_servers()
    for name, record in (("paths.json", record_paths), ("urls.json", record_urls)):
        if name in sys.argv[1:] or len(sys.argv) == 1:
            write(name, record())


if __name__ == "__main__":
    main()
