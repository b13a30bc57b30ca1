// Package share divides room that is held for as long as its holders like, and bounds of all dispatchers together: what is left goes in, and what one
// may have comes out.
package share

// Has says whether one that holds so much may take more of what is left: the first always, if there is room at all, and then up to an eighth of what
// is left. So n that give nothing back leave (8/9)^n of the room to the others.
func Has(left, held int) bool { return left > 0 && (held == 0 || held < left/8) }

// Of returns the part of a bound of all that is one dispatcher's: at least one.
func Of(all int, part float64) int { return max(int(float64(all)*part), 1) }
