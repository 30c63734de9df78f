package inventory

// broken is the panic of an invariant that does not hold. In a product's part of a command it
// halts the product; anywhere else it ends the process.
type broken string

func (b broken) Error() string { return "inventory: broken invariant: " + string(b) }

func assert(holds bool, invariant string) {
	if !holds {
		panic(broken(invariant))
	}
}
