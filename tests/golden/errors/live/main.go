// Makes a state of a transactional producer of a Go client, and prints the error: CLIENT BOOTSTRAP STATE ID. The same
// states as Live.java.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

var bootstrap, state, id = os.Args[2], os.Args[3], os.Args[4]

func timeout() time.Duration {
	switch state {
	case "setting":
		return 2_000_000 * time.Second
	case "timed_out":
		return time.Second
	}
	return time.Minute
}

func topic() (string, int) {
	switch state {
	case "too_large":
		return "small", 5_000
	case "denied_topic":
		return "denied", 5
	}
	return "plain", 5
}

func main() {
	go func() { time.Sleep(40 * time.Second); os.Exit(0) }()
	if os.Args[1] == "franz-go" {
		franz()
	} else {
		ofSarama()
	}
}

func fail(what string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", what, err)
	}
}

func franzClient(limit time.Duration) *kgo.Client {
	one, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), kgo.TransactionTimeout(limit), kgo.ClientID("franz-1"),
		kgo.WithLogger(kgo.BasicLogger(os.Stdout, kgo.LogLevelInfo, nil)), kgo.RecordRetries(3), kgo.RetryTimeout(5*time.Second),
		kgo.RecordDeliveryTimeout(5*time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.UnknownTopicRetries(2),
	)
	fail("new client", err)
	return one
}

func franz() {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	one := franzClient(timeout())
	name, size := topic()
	send := func() {
		fail("produce", one.ProduceSync(ctx, &kgo.Record{Topic: name, Value: make([]byte, size)}).FirstErr())
	}
	if state == "misuse" {
		send()
		return
	}
	fail("begin", one.BeginTransaction())
	send()
	switch state {
	case "fenced", "fenced_commit":
		other := franzClient(time.Minute)
		fail("begin", other.BeginTransaction())
		fail("produce", other.ProduceSync(ctx, &kgo.Record{Topic: name, Value: []byte("x")}).FirstErr())
		if state == "fenced" {
			send()
		}
	case "timed_out":
		time.Sleep(6 * time.Second)
	case "expired":
		fail("end", one.EndTransaction(ctx, kgo.TryCommit))
		time.Sleep(9 * time.Second)
		fail("begin", one.BeginTransaction())
		send()
	}
	fail("end", one.EndTransaction(ctx, kgo.TryCommit))
}

func saramaProducer(limit time.Duration) (sarama.SyncProducer, error) {
	c := sarama.NewConfig()
	c.ClientID = "sarama-1"
	c.Version = sarama.V3_6_0_0
	c.Producer.Idempotent = true
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Retry.Max = 3
	c.Producer.Transaction.Retry.Max = 3
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Transaction.ID = id
	c.Producer.Transaction.Timeout = limit
	c.Net.MaxOpenRequests = 1
	return sarama.NewSyncProducer([]string{bootstrap}, c)
}

func ofSarama() {
	sarama.Logger = log.New(os.Stdout, "", log.LstdFlags)
	one, err := saramaProducer(timeout())
	fail("new producer", err)
	if err != nil {
		return
	}
	name, size := topic()
	send := func() {
		_, _, err := one.SendMessage(&sarama.ProducerMessage{Topic: name, Partition: 0, Value: sarama.ByteEncoder(make([]byte, size))})
		fail("send", err)
	}
	if state == "misuse" {
		fail("commit", one.CommitTxn())
		return
	}
	fail("begin", one.BeginTxn())
	switch state {
	case "group", "denied_group":
		group := map[string]string{"group": "group-1", "denied_group": "denied-group"}[state]
		offsets := map[string][]*sarama.PartitionOffsetMetadata{"plain": {{Partition: 0, Offset: 1}}}
		fail("offsets", one.AddOffsetsToTxn(offsets, group))
	default:
		send()
	}
	switch state {
	case "fenced", "fenced_commit":
		_, err := saramaProducer(time.Minute)
		fail("new producer", err)
		if state == "fenced" {
			send()
		}
	case "timed_out":
		time.Sleep(6 * time.Second)
	case "expired":
		fail("commit", one.CommitTxn())
		time.Sleep(9 * time.Second)
		fail("begin", one.BeginTxn())
		send()
	}
	fail("commit", one.CommitTxn())
}
