// Writes each record of NAME-in to NAME-out, and commits its offset then: at least once.
package main

import (
	"context"
	"log"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	servers, name, forever := strings.Split(os.Args[1], ","), os.Args[2], context.Background()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:           servers,
		GroupID:           name,
		Topic:             name + "-in",
		SessionTimeout:    6 * time.Second,
		HeartbeatInterval: time.Second,
		MaxWait:           100 * time.Millisecond,
		CommitInterval:    100 * time.Millisecond,
	})
	writer := &kafka.Writer{
		Addr:         kafka.TCP(servers...),
		Topic:        name + "-out",
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: time.Millisecond,
	}
	for {
		record, problem := reader.FetchMessage(forever)
		if problem == nil {
			problem = writer.WriteMessages(forever, kafka.Message{Key: record.Key, Value: record.Value})
		}
		if problem == nil {
			problem = reader.CommitMessages(forever, record)
		}
		if problem != nil {
			log.Fatal(problem)
		}
	}
}
