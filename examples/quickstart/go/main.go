// An ordinary service in Go with SQLite: it knows nothing of idempotency.
//
//	go build -o service . && PORT=3000 ./service
package main

import (
	"database/sql"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"time"

	_ "modernc.org/sqlite"
)

// Charge is a row of the table charge.
type Charge struct {
	ID    int64 `json:"id"`
	Cents int64 `json:"cents"`
}

type service struct{ db *sql.DB }

func main() {
	db, err := sql.Open("sqlite", "charges.db?_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	table := "charge (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)"
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS " + table); err != nil {
		log.Fatal(err)
	}
	charges := service{db}
	http.HandleFunc("POST /charges", charges.create)
	http.HandleFunc("GET /charges", charges.list)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}

func (s service) create(response http.ResponseWriter, request *http.Request) {
	var charge Charge
	if err := json.NewDecoder(request.Body).Decode(&charge); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	inserted := "INSERT INTO charge (cents) VALUES (?) RETURNING id"
	if err := s.db.QueryRow(inserted, charge.Cents).Scan(&charge.ID); err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	if request.URL.Query().Has("slow") {
		time.Sleep(20 * time.Second) // The charge is made, and its answer is on its way for long.
	}
	answer(response, http.StatusCreated, charge)
}

func (s service) list(response http.ResponseWriter, _ *http.Request) {
	rows, err := s.db.Query("SELECT id, cents FROM charge ORDER BY id")
	if err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	defer rows.Close()
	charges := []Charge{}
	for rows.Next() {
		var charge Charge
		if err := rows.Scan(&charge.ID, &charge.Cents); err != nil {
			http.Error(response, err.Error(), http.StatusInternalServerError)
			return
		}
		charges = append(charges, charge)
	}
	answer(response, http.StatusOK, charges)
}

func answer(response http.ResponseWriter, status int, document any) {
	bytes, err := json.Marshal(document)
	if err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(status)
	response.Write(bytes)
}
