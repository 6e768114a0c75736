"""Markdown that is shown while it is written: what it becomes, that growing changes nothing, and that no text becomes code."""

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="package")

SHOW = """
async ([text, sizes]) => {
  const { GrowingMarkdown } = await import("/page/markdown.js");
  const place = document.createElement("div");
  const markdown = new GrowingMarkdown(place);
  const seen = [];
  for (let at = 0, i = 0; at < text.length; at += sizes[i], i = (i + 1) % sizes.length) {
    markdown.append(text.slice(at, at + sizes[i]));
    markdown.show();
    seen.push(place.innerHTML);
  }
  markdown.show(true);
  return [place.innerHTML, seen];
}
"""

CASES = {
    "# One\n## Two *x*": '<h4 class="h1">One</h4><h5 class="h2">Two <em>x</em></h5>',
    "a **b** _c_ ~~d~~ `e*f*`": "<p>a <strong>b</strong> <em>c</em> <del>d</del> <code>e*f*</code></p>",
    "***a***": "<p><strong><em>a</em></strong></p>",
    "snake_case_name 2 * 3 * 4": "<p>snake_case_name 2 * 3 * 4</p>",
    "**not closed": "<p>**not closed</p>",
    "\\*a\\* &amp; &lt;b&gt;": "<p>*a* &amp; &lt;b&gt;</p>",
    "- a\n- b\n  - c\n\ntext": "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><p>text</p>",
    "3. x\n4. y": '<ol start="3"><li>x</li><li>y</li></ol>',
    "1. x\n\n2. y": "<ol><li><p>x</p></li><li><p>y</p></li></ol>",
    "> a\n> - b": "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>",
    "---\na  \nb": "<hr><p>a<br>b</p>",
    "```js\n<b>x</b>\n": '<pre tabindex="0" role="region" aria-label="Code: js" data-language="js">'
    "<code>&lt;b&gt;x&lt;/b&gt;\n</code></pre>",
    "| a | b |\n|---|--:|\n| 1 | `x|y` |": '<div class="scroll" tabindex="0" role="region" aria-label="Table">'
    '<table><thead><tr><th class="start">a</th><th class="end">b</th></tr></thead>'
    '<tbody><tr><td class="start">1</td><td class="end"><code>x|y</code></td></tr></tbody></table></div>',
    "<script>x</script> <b>": "<p>&lt;script&gt;x&lt;/script&gt; &lt;b&gt;</p>",
    "[a](javascript:alert(1)) [b](/x) [c](data:x,y)": "<p>[a](javascript:alert(1)) [b](/x) [c](data:x,y)</p>",
}
LINKS = {
    "[a](https://a.test/x_(y))": "https://a.test/x_(y)",
    "<https://a.test>": "https://a.test/",
    "see https://a.test/b.": "https://a.test/b",
    "![i](http://a.test/i.png)": "http://a.test/i.png",
    "[m](mailto:a@b.test)": "mailto:a@b.test",
}

FUZZ = """
async ([seed, count]) => {
  const { GrowingMarkdown } = await import("/page/markdown.js");
  const TAGS = new Set("P UL OL LI PRE CODE H4 H5 H6 HR BR BLOCKQUOTE STRONG EM DEL A DIV TABLE THEAD TBODY TR TH TD".split(" "));
  const NAMES = new Set(["class", "start", "tabindex", "role", "aria-label", "data-language", "href", "target", "rel"]);
  let state = seed;
  const random = (n) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
  const PIECES = [
    "<script>window.hit=1</script>", "<img src=x onerror=window.hit=1>", "<svg/onload=window.hit=1>", "javascript:window.hit=1",
    "[x](javascript:window.hit=1)", "[x](JaVaScRiPt&#58;window.hit=1)", "[x](java\\nscript:window.hit=1)", "<javascript:window.hit=1>",
    "[x](\\tjavascript:window.hit=1)", "![x](data:text/html,<script>window.hit=1</script>)", "[x](vbscript:x)", "[x](//evil.test)",
    "[x](https://a.test/\\" onmouseover=window.hit=1 \\")", "<https://a.test/\\"onload=\\"window.hit=1>", "https://a.test/<b>", "[x](<https://a.test>)",
    "\\u0000", "\\u202e", "\\ud83d\\ude80", "&lt;script&gt;", "&#x3c;", "```", "```html\\n", "~~~", "`", "``", "*", "**", "***", "_", "__", "~~",
    "[", "]", "](", "(", ")", "!", "\\\\", "|", "|---|", "--- | :-:", "a | b", "\\n", "\\n\\n", "\\r\\n", "\\r", "  ", "    ", "\\t", "> ", ">> ", "- ", "* ",
    "1. ", "2) ", "10. ", "# ", "###### ", "---", "***\\n", "word", " and ", "x", ".", "https://", "http://b.test/?q=1", "mailto:a@b.test", "<", ">", '"', "'",
  ];
  const faults = [];
  const made = (text, sizes) => {
    const place = document.createElement("div");
    document.body.append(place);
    const markdown = new GrowingMarkdown(place);
    for (let at = 0; at < text.length; ) {
      const size = 1 + random(sizes);
      markdown.append(text.slice(at, at + size));
      at += size;
      markdown.show();
    }
    markdown.show(true);
    place.remove();
    return place;
  };
  for (let i = 0; i < count && faults.length < 5; i += 1) {
    const text = Array.from({ length: 1 + random(24) }, () => PIECES[random(PIECES.length)]).join("");
    const grown = made(text, 9);
    const atOnce = made(text, 1 << 20);
    if (grown.innerHTML !== atOnce.innerHTML) faults.push(["differs", text, grown.innerHTML, atOnce.innerHTML]);
    for (const element of grown.querySelectorAll("*")) {
      const href = element.getAttribute("href");
      if (!TAGS.has(element.tagName)) faults.push(["tag", text, element.tagName]);
      if (href !== null && !/^(?:https?:\\/\\/|mailto:)/.test(href)) faults.push(["href", text, href]);
      for (const { name } of element.attributes) if (!NAMES.has(name)) faults.push(["attribute", text, name]);
    }
  }
  return [faults, window.hit ?? null];
}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def page(two, browser):
    made = await browser.new_context()
    opened = await made.new_page()
    await opened.goto(two.urls[0])
    yield opened
    await made.close()


@pytest.mark.parametrize("text", CASES, ids=repr)
async def test_what_a_text_becomes(page, text):
    """A text becomes these elements, whether it comes at once or letter by letter."""
    assert (await page.evaluate(SHOW, [text, [len(text)]]))[0] == CASES[text]
    assert (await page.evaluate(SHOW, [text, [1]]))[0] == CASES[text]


@pytest.mark.parametrize("text", LINKS, ids=repr)
async def test_where_a_link_leads(page, text):
    """A link leads where it says, to another page, and tells it nothing of this one."""
    shown, _ = await page.evaluate(SHOW, [text, [3]])
    assert f'<a href="{LINKS[text]}" target="_blank" rel="noopener noreferrer nofollow">' in shown


async def test_what_is_begun_shows_at_once(page):
    """Bold, code and a fence show as what they will be before they are closed."""
    _, seen = await page.evaluate(SHOW, ["**bold** `code`\n\n```py\nx = 1\n```", [1]])
    assert "<p><strong>bo</strong></p>" in seen
    assert any("<code>co</code></p>" in shown for shown in seen)
    assert any(">x = </code></pre>" in shown for shown in seen)


async def test_a_long_listing_keeps_its_element(page):
    """A code block that grows is not built again: what a reader has selected in it stays."""
    script = """
    async () => {
      const { GrowingMarkdown } = await import("/page/markdown.js");
      const place = document.createElement("div");
      const markdown = new GrowingMarkdown(place);
      markdown.append("text\\n\\n```\\nfirst\\n");
      markdown.show();
      const pre = place.querySelector("pre");
      for (let i = 0; i < 50; i += 1) (markdown.append(`line ${i}\\n`), markdown.show());
      return pre === place.querySelector("pre") && pre.textContent.includes("line 49");
    }
    """
    assert await page.evaluate(script)


@pytest.mark.parametrize("seed", range(4))
async def test_no_text_becomes_code(page, seed):
    """Whatever is thrown at it: only these elements, only these attributes, links of three schemes, nothing runs, and how it came makes no difference."""
    faults, hit = await page.evaluate(FUZZ, [seed * 7919, 600])
    assert faults == []
    assert hit is None


async def test_no_text_takes_long(page):
    """Texts that are made to be slow are shown within a moment."""
    script = """
    async (texts) => {
      const { GrowingMarkdown } = await import("/page/markdown.js");
      return texts.map((text) => {
        const began = performance.now();
        const markdown = new GrowingMarkdown(document.createElement("div"));
        markdown.append(text);
        markdown.show();
        return [text.slice(0, 12), performance.now() - began];
      });
    }
    """
    texts = [
        piece * 4000
        for piece in (
            "*",
            "**a ",
            "[",
            "](",
            "[](",
            "`a``",
            "> ",
            "- ",
            "|-",
            "_a",
            "<a:",
            "![",
            "https://",
            "a|b\n",
            "- a\n",
            "#",
        )
    ]
    assert [(text, ms) for text, ms in await page.evaluate(script, texts) if ms > 1500] == []


async def test_markup_in_a_policy_that_forbids_it(page):
    """Even a mistake of ours would not run: the page's policy refuses to turn a text into markup."""
    script = """() => { try { document.body.innerHTML = "<p>"; return "parsed"; } catch (error) { return error.name; } }"""
    assert await page.evaluate(script) == "TypeError"
