// Prints the errors of two Go clients, one a line: client, code, name, text.
package main

import (
	"fmt"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
)

func main() {
	for code := int16(-1); code < 200; code++ {
		if err := kerr.ErrorForCode(code); err != nil {
			if one, ok := err.(*kerr.Error); ok && (one != kerr.UnknownServerError || code == -1) {
				fmt.Printf("franz-go\t%d\t%s\t%s\n", code, one.Message, one.Error())
			}
		}
		fmt.Printf("sarama\t%d\t\t%s\n", code, sarama.KError(code).Error())
	}
}
