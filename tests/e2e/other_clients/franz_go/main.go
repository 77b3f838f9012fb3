// Reads a topic with franz-go until every wanted record came, and prints their places.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const pollDeadline = 30 * time.Second

func main() {
	bootstrap := flag.String("bootstrap", "", "host:port, with commas between")
	topic := flag.String("topic", "", "the topic")
	partitions := flag.Int("partitions", 1, "partitions of the topic")
	wanted := flag.Int("wanted", 0, "records to wait for")
	group := flag.String("group", "", "consumer group; none: partitions are assigned from offset 0 on")
	rack := flag.String("rack", "", "client.rack")
	flag.Parse()

	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.Rack(*rack),
	}
	if *group == "" {
		offsets := map[int32]kgo.Offset{}
		for number := range *partitions {
			offsets[int32(number)] = kgo.NewOffset().At(0)
		}
		assigned := map[string]map[int32]kgo.Offset{*topic: offsets}
		options = append(options, kgo.ConsumePartitions(assigned))
	} else {
		options = append(options, kgo.ConsumerGroup(*group), kgo.ConsumeTopics(*topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for found := 0; found < *wanted; {
		deadline, cancel := context.WithTimeout(context.Background(), pollDeadline)
		fetched := client.PollFetches(deadline)
		cancel()
		if errors := fetched.Errors(); len(errors) > 0 {
			log.Fatal(errors)
		}
		fetched.EachRecord(func(record *kgo.Record) {
			fmt.Println("record", record.Partition, record.Offset)
			found++
		})
	}
	if *group != "" {
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	ends, err := kadm.NewClient(client).ListEndOffsets(context.Background(), *topic)
	if err != nil {
		log.Fatal(err)
	}
	ends.Each(func(end kadm.ListedOffset) { fmt.Println("end", end.Partition, end.Offset) })
}
