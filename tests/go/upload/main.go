// Command upload sends a body with Go's net/http, and prints one line of JSON for each try: {"status": 413, "body": "..."} or
// {"error": "..."}. Each try has a connection of its own.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

type outcome struct {
	Protocol string `json:"protocol,omitempty"`
	Status   int    `json:"status,omitempty"`
	Body     string `json:"body,omitempty"`
	Error    string `json:"error,omitempty"`
}

func main() {
	url, ca := flag.String("url", "", "where to"), flag.String("ca", "", "authority of the server")
	cert, key := flag.String("cert", "", "of the client"), flag.String("key", "", "of the client")
	file, two := flag.String("body", "", "file to send"), flag.Bool("http2", true, "else HTTP/1.1")
	tries := flag.Int("tries", 1, "how often")
	flag.Parse()
	body, err := os.ReadFile(*file)
	if err != nil {
		fail(err)
	}
	config, err := trust(*ca, *cert, *key)
	if err != nil {
		fail(err)
	}
	for range *tries {
		line, err := json.Marshal(send(*url, config, body, *two, flag.Args()))
		if err != nil {
			fail(err)
		}
		fmt.Println(string(line))
	}
}

func trust(ca, cert, key string) (*tls.Config, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if cert == "" {
		return config, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	config.Certificates = []tls.Certificate{pair}
	return config, err
}

func send(url string, config *tls.Config, body []byte, two bool, headers []string) outcome {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(two)
	protocols.SetHTTP1(!two)
	transport := &http.Transport{TLSClientConfig: config.Clone(), Protocols: protocols}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return outcome{Error: err.Error()}
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	return outcome{Protocol: response.Proto, Status: response.StatusCode, Body: string(text)}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
