#include "server/net/transport/tls_context.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <stdexcept>
#include <string_view>

#include "config/quote.hpp"
#include "server/net/credentials/certificate_folder.hpp"
#include "server/net/transport/tls_stream.hpp"

namespace gpunbd::server {

namespace {

// TLS 1.3, and the suites of 1.2 with forward secrecy and AEAD. PSK in 1.2 too: GnuTLS clients
// offer ECDHE-PSK and DHE-PSK.
constexpr const char* ciphers_1_3 =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* ciphers_1_2 =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:"
    "ECDHE-PSK-CHACHA20-POLY1305:"
    "DHE-PSK-AES128-GCM-SHA256:DHE-PSK-AES256-GCM-SHA384:DHE-PSK-CHACHA20-POLY1305:@SECLEVEL=2";
constexpr std::uint64_t behaviour = SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                    SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                    SSL_OP_PRIORITIZE_CHACHA |
                                    // a missing close_notify is not an error
                                    SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_ENABLE_KTLS;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
    throw std::runtime_error(fmt::format("{}: {}", where, what));
}

void check(bool went_well) {
    if (!went_well) throw std::runtime_error("OpenSSL: " + take_openssl_error("no memory"));
}

protocol::TlsMode mode_of(config::TlsMode mode) {
    switch (mode) {
        case config::TlsMode::off:
            break;
        case config::TlsMode::optional:
            return protocol::TlsMode::optional;
        case config::TlsMode::required:
            return protocol::TlsMode::required;
    }
    return protocol::TlsMode::off;
}

unsigned int find_key(SSL* ssl, const char* user, unsigned char* key, unsigned int room) noexcept {
    return TlsStream::of(*ssl).find_key(user, {key, room});
}

// Exports may require only what TLS is configured for. A rule that no client can match would deny
// access to all clients.
void check_demands(const config::ExportOptions& wanted, const config::TlsOptions& tls) {
    const auto name = [&] { return "export " + config::in_quotes(wanted.name); };
    const bool off = tls.mode == config::TlsMode::off;
    if (wanted.tls_required && off) {
        fail(name(), "it requires TLS, but TLS is off; set tls.mode to optional or required");
    }
    for (std::size_t i = 0; i != wanted.access.size(); ++i) {
        const config::AccessRule& rule = wanted.access[i];
        const auto which = [&] { return fmt::format("{}: access[{}]", name(), i); };
        if (rule.tls_name && (off || tls.certificates.empty() || !tls.verify_clients)) {
            fail(which(),
                 "tls_name requires client certificates, and the server does not request any; set "
                 "tls.certificates with verify_clients, or remove the rule");
        }
        if (rule.psk_user && (off || tls.psk.empty())) {
            fail(which(),
                 "psk_user requires shared keys, and there are none; set tls.psk, or remove the "
                 "rule");
        }
    }
}

}  // namespace

void TlsContext::Free::operator()(ssl_ctx_st* context) const noexcept { ::SSL_CTX_free(context); }

std::shared_ptr<const TlsContext> TlsContext::load(const config::Options& options) {
    for (const config::ExportOptions& each : options.exports) check_demands(each, options.tls);
    if (options.tls.mode == config::TlsMode::off) return nullptr;
    return std::shared_ptr<const TlsContext>(new TlsContext(options.tls));
}

TlsContext::TlsContext(const config::TlsOptions& wanted)
    : mode_(mode_of(wanted.mode)), native_(::SSL_CTX_new(::TLS_server_method())) {
    ::ERR_clear_error();
    check(native_ != nullptr);
    SSL_CTX& context = *native_;
    check(SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION) == 1);
    check(::SSL_CTX_set_ciphersuites(&context, ciphers_1_3) == 1);
    check(::SSL_CTX_set_cipher_list(&context, ciphers_1_2) == 1);
    check(SSL_CTX_set_dh_auto(&context, 1) == 1);
    ::SSL_CTX_set_options(&context, behaviour);
    // No session resumption: each connection authenticates.
    SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
    check(::SSL_CTX_set_num_tickets(&context, 0) == 1);
    // OpenSSL treats TLS 1.3 PSKs as sessions, which need a context id of this program.
    constexpr std::string_view program = "gpunbd";
    check(::SSL_CTX_set_session_id_context(&context,
                                           reinterpret_cast<const unsigned char*>(program.data()),
                                           program.size()) == 1);
    SSL_CTX_set_mode(&context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (wanted.certificates.empty() && wanted.psk.empty()) {
        throw std::runtime_error(
            "TLS needs certificates or shared keys; set tls.certificates (--tls-certificates) to "
            "their folder, or tls.psk (--tls-psk) to their file");
    }
    if (!wanted.certificates.empty()) read_certificates(wanted);
    if (!wanted.psk.empty()) {
        psk_ = PskKeys::load(wanted.psk);
        ::SSL_CTX_set_psk_server_callback(&context, find_key);
    }
}

void TlsContext::read_certificates(const config::TlsOptions& wanted) {
    const std::string& folder = wanted.certificates;
    use_certificate(*native_, in_folder(folder, server_certificate_file),
                    in_folder(folder, server_key_file));
    if (wanted.verify_clients) read_authority(folder);
}

void TlsContext::read_authority(const std::string& folder) {
    trust_authority(*native_, folder);
    STACK_OF(X509_NAME)* const names =
        ::SSL_load_client_CA_file(in_folder(folder, authority_file).c_str());
    check(names != nullptr);
    ::SSL_CTX_set_client_CA_list(native_.get(), names);  // takes ownership
    ::SSL_CTX_set_verify(native_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    verifies_clients_ = true;
}

}  // namespace gpunbd::server
