package browser

import (
	"archive/zip"
	"context"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// axeCore is the text of axe-core, from the jar that AXE_JAR names.
var axeCore = sync.OnceValues(func() (string, error) {
	jar, err := zip.OpenReader(os.Getenv("AXE_JAR"))
	if err != nil {
		return "", err
	}
	defer func() { _ = jar.Close() }()
	file, err := jar.Open("axe.min.js")
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(file)
	return string(text), err
})

// needAxe skips a test where there is no axe-core. In CI there must be.
func needAxe(t *testing.T) {
	t.Helper()
	if os.Getenv("AXE_JAR") == "" {
		require.NotEqual(t, "true", os.Getenv("CI"), "AXE_JAR is not set, and CI must run this")
		t.Skip("needs AXE_JAR: export AXE_JAR=$(scripts/axe)")
	}
	_, err := axeCore()
	require.NoError(t, err)
}

// findings are what axe-core holds against the page as it is: a rule and a place each. The page's
// policy on content does not bind the DevTools protocol.
func (p *tab) findings() []string {
	p.Helper()
	source, _ := axeCore()
	const judge = `axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"] })
		.then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html.slice(0, 300) + " " + n.any.map((c) => c.message).join("; "))))`
	ctx, cancel := context.WithTimeout(p.ctx, bound)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[[]string]("if (!window.axe) { "+source+" }; "+judge, chromedp.EvalAwaitPromise))
	require.NoError(p, err)
	return out
}

// looks are how a page is looked at: its colours, and its width.
var looks = []struct {
	name, scheme string
	width        int64
}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"phone", "light", 390}}

// accessible fails where axe-core finds something on the page, or where the page scrolls sideways.
func (p *tab) accessible(page string) {
	p.Helper()
	for _, look := range looks {
		p.looksAs(look.scheme, look.width)
		if found := p.findings(); len(found) > 0 {
			p.Errorf("%s, %s:\n%s", page, look.name, strings.Join(found, "\n"))
		}
		if wide := eval[int64](p, "document.documentElement.scrollWidth"); wide > look.width {
			p.Errorf("%s, %s: %d pixels wide", page, look.name, wide)
		}
	}
	p.looksAs("light", 1280)
}

func (p *tab) looksAs(scheme string, width int64) {
	p.Helper()
	p.do(chromedp.EmulateViewport(width, 900))
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(p, err)
}

// axe-core finds nothing on any page, in light and dark colours and on a phone. No page scrolls
// sideways there.
func TestEveryPageIsAccessible(t *testing.T) {
	needAxe(t)
	s := startStack(t)
	fill(t, s)
	long := strings.Repeat("x", 200)
	s.schedule(t, "shop."+long, long, nil)
	require.Equal(t, 200, s.call(t, "PATCH", "/targets/shop."+long, fields{"paused": true}, nil))
	p := newTab(t, s.base, "Failed to load resource")
	p.open("/")
	p.sees("Sign in")
	p.accessible("sign-in")
	p.open("/sign-in?unchanged=yes")
	p.accessible("sign-in, with a message")
	p.signIn(tokens["admin"])
	all := pages(t, s)
	ask := func(path, do string, more ...string) string {
		q := url.Values{"do": {do}}
		for i := 0; i < len(more); i += 2 {
			q.Set(more[i], more[i+1])
		}
		return path + "?" + q.Encode()
	}
	task := []string{"topic", "shop.orders", "id", "order-1"}
	at := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	for path, text := range map[string]string{
		ask("/task", "cancel", task...):                                  "Keep it",
		ask("/task", "move", append(task, "at", at)...):                  "From now on",
		ask("/task", "move", append(task, "at", "soon")...):              "at",
		ask("/targets", "pause", "topic", "shop.orderz"):                 "all the same",
		ask("/targets", "limit", "topic", "shop.orders", "rate", "many"): "rate",
		ask("/deadletters", "purge"):                                     "all dead letters",
		ask("/find", "cancel", "topic", "shop.orders"):                   "Keep them",
		ask("/timer", "delete", "topic", "shop.orders", "id", "report"):  "Delete this timer",
		ask("/timer", "run", "topic", "shop.orders", "id", "report"):     "Make this run",
		"/task?topic=shop.orders&id=none":                                "404",
		taskPage("shop."+long, long):                                     "History",
		"/find?topic=shop." + long:                                       long,
		"/find?q=nothing-like-that":                                      "No task is like that",
	} {
		all[path] = text
	}
	for path, text := range all {
		p.open(path)
		p.sees(text)
		p.accessible(path)
	}
	for _, role := range []string{"read", "shop"} {
		p := newTab(t, s.base, "Failed to load resource")
		p.signIn(tokens[role])
		for path := range pages(t, s) {
			p.open(path)
			p.sees("Sign out")
			p.accessible(role + " " + path)
		}
	}
	for _, d := range [][2]string{{"/deadletters", "#purge"}, {taskPage("shop."+long, long), "#cancel"}, {"/timers", "?"}} {
		p.open(d[0])
		if d[1] == "?" {
			p.press("?")
		} else {
			p.click(d[1])
		}
		p.eventually("no dialog", `!!document.querySelector("dialog[open]")`)
		p.accessible("dialog of " + d[1])
	}
	p.open(taskPage("shop.orders", "order-2"))
	for _, text := range []string{"+2h", "x"} {
		p.do(chromedp.SendKeys(chromedp.CSS("#at"), text))
		p.seesIn("#at-is", map[string]string{"+2h": "in ", "x": "tomorrow"}[text])
		p.accessible("a due time " + text)
	}
}

// Findings of axe-core fail a test: here it must have some.
func TestFindingsAreSeen(t *testing.T) {
	needAxe(t)
	s := startStack(t)
	p := newTab(t, s.base, "")
	p.open("/")
	p.sees("Sign in")
	require.Empty(t, p.findings())
	eval[any](p, `void document.querySelector("main").append(document.createElement("input"),
		Object.assign(document.createElement("img"), { src: "/console/icon.svg" }))`)
	found := strings.Join(p.findings(), "\n")
	require.Contains(t, found, "label: <input>")
	require.Contains(t, found, "image-alt: <img")
}
