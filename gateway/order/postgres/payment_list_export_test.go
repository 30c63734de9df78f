package postgres

// OffTheWaySQL lists payments by a status that is not on the way of a sale.
const OffTheWaySQL = offTheWaySQL
