module printed

go 1.26

require (
	github.com/IBM/sarama v1.61.1
	github.com/twmb/franz-go v1.22.3
)
