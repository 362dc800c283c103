package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxReview is the largest AdmissionReview: kube-apiserver takes objects of 3 MiB, and a review holds an old and a new one.
const maxReview = 8 << 20

// webhookHandler allows all that it is asked to admit, and serves the resource "pings" in whatever API group it is asked for.
func webhookHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", admit)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	// kube-aggregator then asks for the API of each group and version by itself.
	mux.Handle("GET /apis", http.NotFoundHandler())
	mux.Handle("GET /openapi/", http.NotFoundHandler())
	mux.HandleFunc("GET /apis/{group}/{version}", resources)
	mux.HandleFunc("GET /apis/{group}/{version}/pings", pings)
	return mux
}

func admit(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&review); err != nil {
		http.Error(w, fmt.Sprintf("failed to decode the AdmissionReview: %v", err), http.StatusBadRequest)
		return
	}
	if review.Request == nil {
		http.Error(w, "the AdmissionReview has no request", http.StatusBadRequest)
		return
	}
	answer(w, admissionv1.AdmissionReview{
		TypeMeta: review.TypeMeta,
		Response: &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true},
	})
}

func resources(w http.ResponseWriter, r *http.Request) {
	answer(w, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: r.PathValue("group") + "/" + r.PathValue("version"),
		APIResources: []metav1.APIResource{{Name: "pings", SingularName: "ping", Kind: "Ping", Verbs: metav1.Verbs{"get", "list"}}},
	})
}

func pings(w http.ResponseWriter, r *http.Request) {
	answer(w, metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PingList", APIVersion: r.PathValue("group") + "/" + r.PathValue("version")},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items:    []metav1.PartialObjectMetadata{},
	})
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client is gone.
	_ = json.NewEncoder(w).Encode(object)
}
