// keda_client ADDRESS RPC [KEY=VALUE...]
//
// Asks an external scaler as KEDA does, with KEDA's own generated client, and prints the
// answer as JSON; StreamIsActive's answers a line each, until standard input ends. RPC is
// IsActive, StreamIsActive, GetMetricSpec or GetMetrics; KEY=VALUE are a trigger's
// metadata. GetMetrics asks for the metric that GetMetricSpec names. Exit status: 0, or 1
// with the gRPC code and text on standard error.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	scaler "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const patience = 30 * time.Second

func show(answer any) error {
	text, err := json.Marshal(answer)
	if err == nil {
		fmt.Println(string(text))
	}
	return err
}

func stream(client scaler.ExternalScalerClient, object *scaler.ScaledObjectRef) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	answers, err := client.StreamIsActive(ctx, object)
	if err != nil {
		return err
	}
	for {
		answer, err := answers.Recv()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		show(map[string]bool{"result": answer.GetResult()})
	}
}

func ask(client scaler.ExternalScalerClient, rpc string, object *scaler.ScaledObjectRef) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch rpc {
	case "IsActive":
		answer, err := client.IsActive(ctx, object)
		if err != nil {
			return err
		}
		return show(map[string]bool{"result": answer.GetResult()})
	case "GetMetricSpec", "GetMetrics":
		spec, err := client.GetMetricSpec(ctx, object)
		if err != nil {
			return err
		}
		metric := spec.GetMetricSpecs()[0]
		if rpc == "GetMetricSpec" {
			return show(map[string]any{
				"metricName": metric.GetMetricName(), "targetSizeFloat": metric.GetTargetSizeFloat()})
		}
		answer, err := client.GetMetrics(ctx, &scaler.GetMetricsRequest{
			ScaledObjectRef: object, MetricName: metric.GetMetricName()})
		if err != nil {
			return err
		}
		value := answer.GetMetricValues()[0]
		return show(map[string]any{
			"metricName": value.GetMetricName(), "metricValueFloat": value.GetMetricValueFloat()})
	case "StreamIsActive":
		return stream(client, object)
	}
	return fmt.Errorf("there is no RPC %q", rpc)
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: keda_client ADDRESS RPC [KEY=VALUE...]")
		os.Exit(2)
	}
	connection, err := grpc.NewClient(
		os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		object := &scaler.ScaledObjectRef{
			Name: "workers", Namespace: "djinn", ScalerMetadata: map[string]string{}}
		for _, argument := range os.Args[3:] {
			key, value, _ := strings.Cut(argument, "=")
			object.ScalerMetadata[key] = value
		}
		err = ask(scaler.NewExternalScalerClient(connection), os.Args[2], object)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, status.Code(err), status.Convert(err).Message())
		os.Exit(1)
	}
}
