package daemon

import (
	"io"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// NewLogger makes the daemon's logger and sends client-go's klog into it. The
// options must be valid.
func NewLogger(o LogOptions, w io.Writer) *zap.Logger {
	level, err := zapcore.ParseLevel(o.Level)
	if err != nil {
		level = zapcore.InfoLevel
	}
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	config.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(config)
	if o.Format == "console" {
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(config)
	}
	log := zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
	klog.SetLogger(zapr.NewLogger(log.Named("client-go")))
	return log
}
