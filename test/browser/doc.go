// Package browser uses the console in a real browser, as people do: by what stands on the pages, with a mouse and without one, on a
// screen and on a phone. UPDATE_SCREENSHOTS=1 writes the images of the documents anew.
package browser
