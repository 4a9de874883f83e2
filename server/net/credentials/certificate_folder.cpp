#include "server/net/credentials/certificate_folder.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "config/unreadable.hpp"
#include "server/net/credentials/openssl_error.hpp"
#include "server/net/credentials/private_key.hpp"

namespace gpunbd::server {

namespace {

[[noreturn]] void wrong_file(const std::string& path, const std::string& what) {
    throw std::runtime_error(fmt::format("{}: {}", path, what));
}

void need_file(const std::string& path) {
    std::FILE* const file = std::fopen(path.c_str(), "re");
    if (file == nullptr) {
        wrong_file(path,
                   "cannot be read: " + config::why_unreadable(path, errno, made_by_tls_setup));
    }
    std::fclose(file);
}

// There is no terminal to ask for a passphrase.
int refuse_passphrase(char*, int, int, void*) { return -1; }

}  // namespace

std::string in_folder(const std::string& folder, const char* name) {
    return folder + (folder.ends_with('/') ? "" : "/") + name;
}

void use_certificate(SSL_CTX& context, const std::string& certificate, const std::string& key) {
    need_file(certificate);
    ::SSL_CTX_set_default_passwd_cb(&context, refuse_passphrase);
    if (::SSL_CTX_use_certificate_chain_file(&context, certificate.c_str()) != 1) {
        wrong_file(certificate, fmt::format("is not a usable PEM certificate ({})",
                                            take_openssl_error("no reason given")));
    }
    const auto its_key = read_private_key(key);
    if (::X509_check_private_key(::SSL_CTX_get0_certificate(&context), its_key.get()) != 1) {
        ::ERR_clear_error();
        wrong_file(key, fmt::format("is not the key of the certificate {}", certificate));
    }
    if (::SSL_CTX_use_PrivateKey(&context, its_key.get()) != 1) {
        wrong_file(key, take_openssl_error("cannot be used"));
    }
}

void trust_authority(SSL_CTX& context, const std::string& folder) {
    const std::string path = in_folder(folder, authority_file);
    need_file(path);
    if (::SSL_CTX_load_verify_file(&context, path.c_str()) != 1) {
        wrong_file(path, fmt::format("contains no PEM certificate ({})",
                                     take_openssl_error("no reason given")));
    }
    const std::string revoked = in_folder(folder, revoked_file);
    struct stat status {};
    if (::stat(revoked.c_str(), &status) != 0 && errno == ENOENT) return;
    need_file(revoked);
    X509_STORE* const store = ::SSL_CTX_get_cert_store(&context);
    if (::X509_STORE_load_file(store, revoked.c_str()) != 1 ||
        ::X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK) != 1) {
        wrong_file(revoked, fmt::format("contains no PEM list of revoked certificates ({})",
                                        take_openssl_error("no reason given")));
    }
}

}  // namespace gpunbd::server
