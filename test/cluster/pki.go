package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// writePKI writes the CA (ca.crt), the API server's certificate
// (apiserver.crt and .key) and the key of the service accounts' tokens (sa.key and .pub).
func writePKI(dir string) error {
	caKey, err := newKey()
	if err != nil {
		return err
	}
	ca := certificate("ganglion-test-ca", 1)
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return fmt.Errorf("signing the CA: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	serving := certificate("kube-apiserver", 2)
	serving.KeyUsage, serving.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	serving.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	servingDER, err := x509.CreateCertificate(rand.Reader, serving, ca, &key.PublicKey, caKey)
	if err != nil {
		return fmt.Errorf("signing the API server's certificate: %w", err)
	}
	saKey, err := newKey()
	if err != nil {
		return err
	}
	saPub, err := x509.MarshalPKIXPublicKey(&saKey.PublicKey)
	if err != nil {
		return fmt.Errorf("encoding a key: %w", err)
	}
	files := map[string]*pem.Block{
		"ca.crt":        {Type: "CERTIFICATE", Bytes: caDER},
		"apiserver.crt": {Type: "CERTIFICATE", Bytes: servingDER},
		"sa.pub":        {Type: "PUBLIC KEY", Bytes: saPub},
	}
	for name, k := range map[string]*ecdsa.PrivateKey{"apiserver.key": key, "sa.key": saKey} {
		der, err := x509.MarshalECPrivateKey(k)
		if err != nil {
			return fmt.Errorf("encoding a key: %w", err)
		}
		files[name] = &pem.Block{Type: "EC PRIVATE KEY", Bytes: der}
	}
	for name, block := range files {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

func certificate(name string, serial int64) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour),
	}
}
