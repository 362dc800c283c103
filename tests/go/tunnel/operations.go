package main

import (
	"bufio"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// callWebhook creates a ConfigMap without persisting it. A webhook with the failurePolicy Fail must cover the namespace.
func (c *cluster) callWebhook(client kubernetes.Interface) operation {
	maps := client.CoreV1().ConfigMaps(c.webhookNamespace)
	return func(ctx context.Context, number int) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("tunnel-%d", number)}}
		_, err := maps.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

func (c *cluster) listAggregated(client kubernetes.Interface) operation {
	return func(ctx context.Context, _ int) error {
		return client.Discovery().RESTClient().Get().AbsPath(c.aggregated).Do(ctx).Error()
	}
}

func (c *cluster) readLogs(client kubernetes.Interface) operation {
	return func(ctx context.Context, _ int) error {
		text, err := client.CoreV1().Pods(c.namespace).GetLogs(c.pod, c.logOptions(false)).DoRaw(ctx)
		if err == nil && len(text) == 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
}

func (c *cluster) followLogs(client kubernetes.Interface) stream {
	return func(ctx context.Context, line func()) error {
		body, err := client.CoreV1().Pods(c.namespace).GetLogs(c.pod, c.logOptions(true)).Stream(ctx)
		if err != nil {
			return err
		}
		defer body.Close()
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			line()
		}
		return lines.Err()
	}
}

func (c *cluster) logOptions(follow bool) *corev1.PodLogOptions {
	return &corev1.PodLogOptions{Container: c.container, Follow: follow}
}
