package main

import (
	"context"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
)

// config answers what kube-apiserver would. Commands:
//
//	check FILE                            whether the configuration is accepted
//	open FILE RESOURCE PLACE BASE64       opens what rests at a place
//	seal FILE RESOURCE PLACE BASE64       seals for a place
func config(ctx context.Context, _ []string) (commands, error) {
	return commands{
		"check": func(words []string) (answer, error) {
			_, done, err := load(ctx, words[0])
			done()
			if err != nil {
				return answer{"accepted": false, "why": err.Error()}, nil
			}
			return answer{"accepted": true}, nil
		},
		"open": func(words []string) (answer, error) {
			return transform(ctx, words, func(ctx context.Context, t value.Transformer, data []byte) ([]byte, error) {
				plain, _, err := t.TransformFromStorage(ctx, data, value.DefaultContext(words[2]))
				return plain, err
			})
		},
		"seal": func(words []string) (answer, error) {
			return transform(ctx, words, func(ctx context.Context, t value.Transformer, data []byte) ([]byte, error) {
				return t.TransformToStorage(ctx, data, value.DefaultContext(words[2]))
			})
		},
	}, nil
}

func load(ctx context.Context, file string) (*encryptionconfig.EncryptionConfiguration, context.CancelFunc, error) {
	ctx, done := context.WithCancel(ctx)
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, true, "tests")
	return loaded, done, err
}

func transform(
	ctx context.Context, words []string, how func(context.Context, value.Transformer, []byte) ([]byte, error),
) (answer, error) {
	if len(words) != 4 {
		return nil, fmt.Errorf("4 words wanted, %d given", len(words))
	}
	loaded, done, err := load(ctx, words[0])
	defer done()
	if err != nil {
		return nil, err
	}
	transformers := encryptionconfig.StaticTransformers(loaded.Transformers)
	data, err := base64.StdEncoding.DecodeString(words[3])
	if err != nil {
		return nil, err
	}
	result, err := how(ctx, transformers.TransformerForResource(schema.ParseGroupResource(words[1])), data)
	return answer{"data": base64.StdEncoding.EncodeToString(result)}, err
}
