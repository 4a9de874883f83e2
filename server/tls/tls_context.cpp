#include "server/tls/tls_context.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "config/quote.hpp"
#include "server/tls/openssl_error.hpp"
#include "server/tls/private_file.hpp"
#include "server/tls/tls_stream.hpp"

namespace gpunbd::server {

namespace {

// TLS 1.3, and in 1.2 what has forward secrecy and seals each record as a whole (AEAD). Of PSK in
// 1.2, too: GnuTLS's clients offer ECDHE-PSK and DHE-PSK.
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
                                    // a hang-up is none the worse for not being announced
                                    SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_ENABLE_KTLS;

constexpr const char* authority_file = "ca-cert.pem";
constexpr const char* revoked_file = "ca-crl.pem";
constexpr const char* certificate_file = "server-cert.pem";
constexpr const char* key_file = "server-key.pem";

struct FreeOpenssl {
    void operator()(BIO* bio) const noexcept { ::BIO_free(bio); }
    void operator()(EVP_PKEY* key) const noexcept { ::EVP_PKEY_free(key); }
};

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

std::string in_folder(const std::string& folder, const char* name) {
    return folder + (folder.ends_with('/') ? "" : "/") + name;
}

void need_file(const std::string& path) {
    std::FILE* const file = std::fopen(path.c_str(), "re");
    if (file == nullptr) fail(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    std::fclose(file);
}

// Nobody is asked for a passphrase: a server has nobody to ask.
int no_passphrase(char*, int, int, void* asked) {
    if (asked != nullptr) *static_cast<bool*>(asked) = true;
    return -1;
}

std::unique_ptr<EVP_PKEY, FreeOpenssl> read_key(const std::string& path) {
    const SecretBytes text = read_private_file(path);
    const std::unique_ptr<BIO, FreeOpenssl> bio(
        ::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    check(bio != nullptr);
    bool encrypted = false;
    std::unique_ptr<EVP_PKEY, FreeOpenssl> key(
        ::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, &encrypted));
    if (key) return key;
    ::ERR_clear_error();
    fail(path, encrypted ? "is encrypted, and a server has nobody to ask for the passphrase; "
                           "decrypt it, for example by: openssl pkey"
                         : "is not a private key in PEM");
}

std::string date_of(const ASN1_TIME& time) {
    const std::unique_ptr<BIO, FreeOpenssl> bio(::BIO_new(::BIO_s_mem()));
    char* text = nullptr;
    if (bio == nullptr || ::ASN1_TIME_print(bio.get(), &time) != 1) return "?";
    const long length = ::BIO_get_mem_data(bio.get(), &text);
    return {text, static_cast<std::size_t>(length)};
}

// No client that looks at it would come: better to say so at once.
void check_dates(const std::string& path, const X509& certificate) {
    const ASN1_TIME& until = *::X509_get0_notAfter(&certificate);
    const ASN1_TIME& from = *::X509_get0_notBefore(&certificate);
    if (::X509_cmp_current_time(&until) < 0) {
        fail(path, fmt::format("expired on {}; make a new one", date_of(until)));
    }
    if (::X509_cmp_current_time(&from) > 0) {
        fail(path, fmt::format("is not valid before {}; look at the clock", date_of(from)));
    }
}

unsigned int find_key(SSL* ssl, const char* user, unsigned char* key, unsigned int room) noexcept {
    return TlsStream::of(*ssl).find_key(user, {key, room});
}

// What an export asks of TLS has to be there: a rule that no client can match would keep all out.
void check_demands(const config::ExportOptions& wanted, const config::TlsOptions& tls) {
    const std::string name = "export " + config::in_quotes(wanted.name);
    const bool off = tls.mode == config::TlsMode::off;
    if (wanted.tls_required && off) {
        fail(name,
             "it is to be had in TLS only, and TLS is off; set tls.mode to optional or required");
    }
    for (std::size_t i = 0; i != wanted.access.size(); ++i) {
        const config::AccessRule& rule = wanted.access[i];
        const std::string which = fmt::format("{}: access[{}]", name, i);
        if (rule.tls_name && (off || tls.certificates.empty() || !tls.verify_clients)) {
            fail(which,
                 "tls_name is about certificates that clients show, and none are asked for; set "
                 "tls.certificates, with verify_clients, or leave the rule out");
        }
        if (rule.psk_user && (off || tls.psk.empty())) {
            fail(which,
                 "psk_user is about shared keys, and there are none; set tls.psk, or leave the "
                 "rule out");
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
    ::SSL_CTX_set_default_passwd_cb(&context, no_passphrase);
    // Nothing is resumed: each connection proves itself.
    SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
    check(::SSL_CTX_set_num_tickets(&context, 0) == 1);
    // Shared keys of TLS 1.3 are sessions to OpenSSL, which have to be of this program.
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
    const std::string certificate_path = in_folder(folder, certificate_file);
    const std::string key_path = in_folder(folder, key_file);
    need_file(certificate_path);
    if (::SSL_CTX_use_certificate_chain_file(native_.get(), certificate_path.c_str()) != 1) {
        fail(certificate_path, fmt::format("is not a certificate in PEM that can be used ({})",
                                           take_openssl_error("no reason given")));
    }
    const X509& certificate = *::SSL_CTX_get0_certificate(native_.get());
    check_dates(certificate_path, certificate);
    const std::unique_ptr<EVP_PKEY, FreeOpenssl> key = read_key(key_path);
    if (::X509_check_private_key(&certificate, key.get()) != 1) {
        ::ERR_clear_error();
        fail(key_path, fmt::format("is not the key of the certificate {}", certificate_path));
    }
    if (::SSL_CTX_use_PrivateKey(native_.get(), key.get()) != 1) {
        fail(key_path, take_openssl_error("cannot be used"));
    }
    if (wanted.verify_clients) read_authority(folder);
}

void TlsContext::read_authority(const std::string& folder) {
    const std::string path = in_folder(folder, authority_file);
    need_file(path);
    if (::SSL_CTX_load_verify_file(native_.get(), path.c_str()) != 1) {
        fail(path, fmt::format("holds no certificate in PEM ({})",
                               take_openssl_error("no reason given")));
    }
    STACK_OF(X509_NAME)* const names = ::SSL_load_client_CA_file(path.c_str());
    check(names != nullptr);
    ::SSL_CTX_set_client_CA_list(native_.get(), names);  // takes them
    const std::string revoked = in_folder(folder, revoked_file);
    struct stat status {};
    if (::stat(revoked.c_str(), &status) == 0 || errno != ENOENT) {
        need_file(revoked);
        X509_STORE* const store = ::SSL_CTX_get_cert_store(native_.get());
        if (::X509_STORE_load_file(store, revoked.c_str()) != 1) {
            fail(revoked, fmt::format("holds no list of revoked certificates in PEM ({})",
                                      take_openssl_error("no reason given")));
        }
        check(::X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK) == 1);
    }
    ::SSL_CTX_set_verify(native_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    verifies_clients_ = true;
}

}  // namespace gpunbd::server
