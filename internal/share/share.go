// Package share divides room that holders keep for as long as they like, and bounds of all
// dispatchers together: the remaining room goes in, and one holder's share comes out.
package share

// Has says whether a holder of so much may take more of the rest: the first always, if there is
// room at all, and then up to an eighth of the rest. So n that give nothing back leave (8/9)^n of
// the room to the others.
func Has(left, held int) bool { return left > 0 && (held == 0 || held < left/8) }

// Of returns one dispatcher's part of a bound of all: at least one.
func Of(all int, part float64) int { return max(int(float64(all)*part), 1) }
