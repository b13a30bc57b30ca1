package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	run "github.com/notyet/notyet/test/program"
)

// bound is for what takes moments, on a machine that does much else.
const bound = time.Minute

// browser is one process for all tests of this package; each tab has cookies of its own.
var browser struct {
	once   sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	err    error
}

func TestMain(m *testing.M) {
	code := run.Run(m)
	if browser.cancel != nil {
		browser.cancel()
	}
	os.Exit(code)
}

func program() (string, error) {
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("needs a browser: apt-get install chromium-headless-shell")
}

// open starts the browser, or skips the test where there is none.
func openBrowser(t *testing.T) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Skip(err)
	}
	browser.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 900), chromedp.Flag("hide-scrollbars", true))
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox) // it refuses to run as root with one
		}
		allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, closeTab := chromedp.NewContext(allocator)
		browser.ctx, browser.cancel = ctx, func() { closeTab(); stop() }
		browser.err = chromedp.Do(ctx)
	})
	require.NoError(t, browser.err)
}

// tab is a page that somebody looks at.
type tab struct {
	*testing.T
	ctx      context.Context
	base     string // URL of the console
	expected string // a part of what its console may say; "": nothing
	clicks   int
	seen     chan string
}

// newTab opens one. At the end of the test its console must be empty: no error of a script, nothing that the policy on content refused,
// nothing that could not be loaded. Only messages with the expected text are allowed, if there is one.
func newTab(t *testing.T, base, expected string) *tab {
	t.Helper()
	openBrowser(t)
	ctx, cancel := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	p := &tab{T: t, ctx: ctx, base: base, expected: expected, seen: make(chan string, 100)}
	messages := chromedp.Console(ctx)
	var said []string
	read := make(chan struct{})
	go func() {
		defer close(read)
		for m, err := range messages {
			if err != nil {
				return
			}
			text := m.String() + " " + m.URL
			if strings.Contains(text, "Autofocus processing was blocked") { // the page was reloaded while a field had the focus
				continue
			}
			select {
			case p.seen <- text:
			default:
			}
			if p.expected == "" || !strings.Contains(text, p.expected) {
				said = append(said, text)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-read
		require.Empty(t, said, "the browser's console")
	})
	p.do(chromedp.Steps())
	return p
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, bound)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		require.NoError(p, err, "the page shows:\n%s", p.text())
	}
}

// eval runs a script of the test's own. It may do what the page's scripts may not.
func eval[T any](p *tab, script string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, bound)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	require.NoError(p, err, script)
	return out
}

func (p *tab) text() string {
	ctx, cancel := context.WithTimeout(p.ctx, bound)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body ? document.body.innerText : ''"))
	if err != nil {
		return err.Error()
	}
	return text
}

// back is the browser's own button. A script's history.back may end the page before the script has answered.
func (p *tab) back() {
	p.Helper()
	p.do(chromedp.NavigateBack())
}

// open goes to a page of the console, and expects it to be found.
func (p *tab) open(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.base + path))
}

// eventually waits for a condition, a script that is evaluated again and again. A page that is just being left has none.
func (p *tab) eventually(what, condition string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, bound)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool](condition)); err == nil && yes {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			where, _ := chromedp.Run(p.ctx, chromedp.Location())
			require.Fail(p, what, "at %s the page shows:\n%s", where, p.text())
		}
	}
}

// sees waits until all of these texts are visible.
func (p *tab) sees(texts ...string) {
	p.Helper()
	for _, s := range texts {
		p.eventually(fmt.Sprintf("%q is not shown", s), fmt.Sprintf("document.body.innerText.includes(%q)", s))
	}
}

// lacks waits until none of these texts is visible.
func (p *tab) lacks(texts ...string) {
	p.Helper()
	for _, s := range texts {
		p.eventually(fmt.Sprintf("%q is shown", s), fmt.Sprintf("!document.body.innerText.includes(%q)", s))
	}
}

// seesIn waits until an element shows a text.
func (p *tab) seesIn(element, text string) {
	p.Helper()
	p.eventually(fmt.Sprintf("%s does not show %q", element, text), fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", element, text))
}

// click clicks on what can be seen.
func (p *tab) click(element string) {
	p.Helper()
	p.clicks++
	p.do(chromedp.Click(chromedp.CSS(element), chromedp.NodeVisible))
}

// signIn does so with a token.
func (p *tab) signIn(token string) {
	p.Helper()
	p.open("/")
	p.do(chromedp.SendKeys(chromedp.CSS("#token"), token))
	p.click("#sign-in")
	p.sees("Sign out")
}

// tabTo presses Tab until a condition holds.
func (p *tab) tabTo(condition string) {
	p.Helper()
	for range 200 {
		if eval[bool](p, condition) {
			return
		}
		p.press(kb.Tab)
	}
	require.Fail(p, "Tab does not lead there", "%s\n%s", condition, p.text())
}

// withoutScripts turns the pages' scripts off.
func (p *tab) withoutScripts() {
	p.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(p, err)
}

// scripted waits until the page's script has run: before, its keys do nothing.
func (p *tab) scripted() {
	p.Helper()
	p.eventually("the script has not run", `!document.getElementById("age").hidden`)
}

// press presses keys one after the other, as on a keyboard.
func (p *tab) press(keys ...string) {
	p.Helper()
	for _, k := range keys {
		p.do(chromedp.KeyEvent(k))
	}
}

// phone makes the tab as wide as a small phone.
func (p *tab) phone() { p.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile)) }

// dark asks pages for their dark colours.
func (p *tab) dark() {
	p.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	require.NoError(p, err)
}

// pictured writes an image of the page for the documents, if that was asked for.
func (p *tab) pictured(name string) {
	p.Helper()
	if os.Getenv("UPDATE_SCREENSHOTS") == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, bound)
	defer cancel()
	image, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(p, err)
	path := filepath.Join("..", "..", "docs", "images", "console-"+strings.ReplaceAll(name, " ", "-")+".png")
	require.NoError(p, os.WriteFile(path, image, 0o644))
}
