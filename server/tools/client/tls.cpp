#include "server/tools/client/tls.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <stdexcept>

#include "config/quote.hpp"
#include "server/net/credentials/certificate_folder.hpp"
#include "server/net/credentials/psk_keys.hpp"
#include "server/tools/client/stream.hpp"

namespace gpunbd::client {
namespace {

// TLS 1.2 ciphers with forward secrecy and AEAD that the kernel supports.
constexpr const char* by_certificate =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:@SECLEVEL=2";
constexpr const char* by_shared_key =
    "DHE-PSK-AES128-GCM-SHA256:DHE-PSK-AES256-GCM-SHA384:"
    "ECDHE-PSK-CHACHA20-POLY1305:@SECLEVEL=2";  // GnuTLS servers support this cipher as well

void check_tls(bool went_well) {
    if (!went_well) throw std::runtime_error("TLS: " + server::take_openssl_error("no memory"));
}

unsigned int give_shared_key(SSL* ssl, const char*, char* user, unsigned int user_room,
                             unsigned char* key, unsigned int key_room) noexcept {
    const auto* const tls = static_cast<const Tls*>(SSL_CTX_get_app_data(::SSL_get_SSL_CTX(ssl)));
    return tls->give_key(user, user_room, key, key_room);
}

}  // namespace

void FreeTls::operator()(SSL_CTX* context) const noexcept { ::SSL_CTX_free(context); }
void FreeTls::operator()(SSL* ssl) const noexcept { ::SSL_free(ssl); }

Expected<std::shared_ptr<const Tls>, Failure> Tls::load(const config::NbdTarget& target, TlsBy by) {
    if (by == TlsBy::kernel) {
        if (auto missing = kernel_lacks_tls()) return std::move(*missing);
    }
    try {
        return std::shared_ptr<const Tls>(new Tls(target, by));
    } catch (const std::runtime_error& error) {
        return Failure{error.what()};
    }
}

Tls::Tls(const config::NbdTarget& target, TlsBy by)
    : by_(by), context_(::SSL_CTX_new(::TLS_client_method())), user_(target.user) {
    ::ERR_clear_error();
    check_tls(context_ != nullptr);
    SSL_CTX& context = *context_;
    check_tls(SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION) == 1);
    ::SSL_CTX_set_options(&context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
    if (by == TlsBy::kernel) {
        // A TLS 1.3 server may send tickets and key updates at any time. The kernel's client would
        // treat these as the end of the connection.
        check_tls(SSL_CTX_set_max_proto_version(&context, TLS1_2_VERSION) == 1);
        ::SSL_CTX_set_options(&context, SSL_OP_ENABLE_KTLS);
    }
    SSL_CTX_set_app_data(&context, this);
    ::SSL_CTX_set_verify(&context, target.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
    if (!target.psk_file.empty()) {
        use_shared_key(target.psk_file);
    } else {
        use_certificates(target);
    }
}

void Tls::use_shared_key(const std::string& file) {
    const server::PskKeys keys = server::PskKeys::load(file);
    const server::PskKeys::Found found = keys.find(user_);
    if (!found.known) {
        throw std::runtime_error(
            fmt::format("{}: has no key for the user {}", file, config::in_quotes(user_)));
    }
    key_.assign(found.key.begin(), found.key.end());
    check_tls(::SSL_CTX_set_cipher_list(context_.get(), by_shared_key) == 1);
    ::SSL_CTX_set_psk_client_callback(context_.get(), give_shared_key);
}

// The client certificate is optional, because some servers do not request one.
void Tls::use_certificates(const config::NbdTarget& target) {
    check_tls(::SSL_CTX_set_cipher_list(context_.get(), by_certificate) == 1);
    if (target.verify) server_ = target.tls_hostname.empty() ? target.host : target.tls_hostname;
    if (target.certificates.empty()) {
        check_tls(::SSL_CTX_set_default_verify_paths(context_.get()) == 1);
        return;
    }
    server::trust_authority(*context_, target.certificates);
    const std::string certificate =
        server::in_folder(target.certificates, server::client_certificate_file);
    if (!std::filesystem::exists(certificate)) return;
    const auto its = server::chain_validity(certificate);
    const std::string why = its ? server::why_invalid(*its, std::time(nullptr)) : std::string();
    if (!why.empty()) throw std::runtime_error(why);  // no server would accept it
    server::use_certificate(*context_, certificate,
                            server::in_folder(target.certificates, server::client_key_file));
}

Ssl Tls::begin(int fd) const {
    Ssl ssl(::SSL_new(context_.get()));
    if (ssl == nullptr || ::SSL_set_fd(ssl.get(), fd) != 1) return nullptr;
    if (server_.empty()) return ssl;
    if (::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl.get()), server_.c_str()) == 1) {
        return ssl;
    }
    ::ERR_clear_error();  // not an address but a name
    if (::SSL_set1_host(ssl.get(), server_.c_str()) != 1 ||
        SSL_set_tlsext_host_name(ssl.get(), server_.c_str()) != 1) {
        return nullptr;
    }
    return ssl;
}

std::string Tls::failure_of(const SSL& ssl) const {
    const long verified = ::SSL_get_verify_result(&ssl);
    if (verified != X509_V_OK && ::SSL_get_verify_mode(&ssl) != SSL_VERIFY_NONE) {
        ::ERR_clear_error();
        return ::X509_verify_cert_error_string(verified);
    }
    const int reason = ERR_GET_REASON(::ERR_peek_error());
    const std::string error_text = server::take_openssl_error("");
    std::string why =
        error_text.empty() ? "the server closed the connection during the handshake" : error_text;
    if (by_ == TlsBy::kernel &&
        (error_text.empty() || reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION)) {
        why += "; the kernel's client needs a server that supports TLS 1.2";
    }
    if (!user_.empty()) {
        why += fmt::format("; check that the server has the same key for {}",
                           config::in_quotes(user_));
    }
    return why;
}

unsigned int Tls::give_key(char* user, unsigned int user_room, unsigned char* key,
                           unsigned int key_room) const noexcept {
    if (user_.size() >= user_room || key_.size() > key_room) return 0;
    std::memcpy(user, user_.c_str(), user_.size() + 1);
    std::memcpy(key, key_.data(), key_.size());
    return static_cast<unsigned int>(key_.size());
}

}  // namespace gpunbd::client
