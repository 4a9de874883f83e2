#include "server/net/credentials/certificate_folder.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "config/unreadable.hpp"
#include "server/net/credentials/private_file.hpp"

namespace gpunbd::server {

namespace {

struct FreeEntries {
    void operator()(BIO* file) const noexcept { ::BIO_free(file); }
    void operator()(STACK_OF(X509_INFO) * entries) const noexcept {
        sk_X509_INFO_pop_free(entries, ::X509_INFO_free);
    }
};
using Entries = std::unique_ptr<STACK_OF(X509_INFO), FreeEntries>;

std::time_t time_of(const ASN1_TIME& time) {
    std::tm parts{};
    return ::ASN1_TIME_to_tm(&time, &parts) == 1 ? ::timegm(&parts) : 0;
}

// Of each certificate and list of a file.
std::vector<Validity> validities_in(const std::string& path) {
    std::vector<Validity> out;
    const std::unique_ptr<BIO, FreeEntries> file(::BIO_new_file(path.c_str(), "re"));
    const Entries entries(file ? ::PEM_X509_INFO_read_bio(file.get(), nullptr, nullptr, nullptr)
                               : nullptr);
    ::ERR_clear_error();
    for (int i = 0; entries && i != sk_X509_INFO_num(entries.get()); ++i) {
        const X509_INFO& each = *sk_X509_INFO_value(entries.get(), i);
        if (each.x509 != nullptr) {
            out.push_back({path, time_of(*::X509_get0_notBefore(each.x509)),
                           time_of(*::X509_get0_notAfter(each.x509))});
        } else if (each.crl != nullptr && ::X509_CRL_get0_nextUpdate(each.crl) != nullptr) {
            out.push_back({path, time_of(*::X509_CRL_get0_lastUpdate(each.crl)),
                           time_of(*::X509_CRL_get0_nextUpdate(each.crl))});
        }
    }
    return out;
}

// Of a file of which one certificate or list is enough.
std::optional<Validity> longest_validity(const std::string& path) {
    const std::vector<Validity> all = validities_in(path);
    const auto last = std::ranges::max_element(all, {}, &Validity::until);
    return last == all.end() ? std::nullopt : std::optional(*last);
}

std::string date_text(std::time_t time) { return fmt::format("{:%F %R} UTC", fmt::gmtime(time)); }

struct Finding {
    std::string problem = {};  // empty: it is valid
    const char* remedy = "";
};

Finding look_at(const Validity& its, std::time_t now) {
    if (its.until <= now) return {"expired on " + date_text(its.until), "create a new one"};
    if (its.from > now) return {"is not valid before " + date_text(its.from), "check the clock"};
    return {};
}

struct FreeKeyText {
    void operator()(BIO* bio) const noexcept { ::BIO_free(bio); }
};

int no_passphrase(char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
}

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

std::string take_openssl_error(const char* otherwise) {
    const unsigned long first = ::ERR_get_error();
    ::ERR_clear_error();
    if (first == 0) return otherwise;
    if (ERR_SYSTEM_ERROR(first)) return std::strerror(ERR_GET_REASON(first));
    const char* const reason = ::ERR_reason_error_string(first);
    return reason != nullptr ? reason : otherwise;
}

std::optional<Validity> chain_validity(const std::string& path) {
    const std::vector<Validity> all = validities_in(path);
    if (all.empty()) return std::nullopt;
    return Validity{path, std::ranges::max_element(all, {}, &Validity::from)->from,
                    std::ranges::min_element(all, {}, &Validity::until)->until};
}

std::vector<Validity> server_validities(const config::Options& options) {
    const config::TlsOptions& tls = options.tls;
    const bool of_clients = tls.mode != config::TlsMode::off;
    if (tls.certificates.empty() || (!of_clients && !options.admin.tcp.tls)) return {};
    std::vector<std::optional<Validity>> found{
        chain_validity(in_folder(tls.certificates, server_certificate_file))};
    if ((of_clients && tls.verify_clients) || options.admin.tcp.tls) {
        found.push_back(longest_validity(in_folder(tls.certificates, authority_file)));
        found.push_back(longest_validity(in_folder(tls.certificates, revoked_file)));
    }
    std::vector<Validity> out;
    for (auto& each : found) {
        if (each) out.push_back(std::move(*each));
    }
    return out;
}

std::string why_invalid(const Validity& its, std::time_t now) {
    const Finding found = look_at(its, now);
    if (found.problem.empty()) return {};
    return fmt::format("{}: {}; {}", its.path, found.problem, found.remedy);
}

std::optional<ValidityWarning> validity_warning(const Validity& its, std::time_t now) {
    const Finding found = look_at(its, now);
    if (!found.problem.empty()) {
        return ValidityWarning{
            true, fmt::format("{}: {}, so connections in TLS fail; {}, and reload", its.path,
                              found.problem, found.remedy)};
    }
    if (its.until - now >= expires_soon) return std::nullopt;
    return ValidityWarning{false, fmt::format("{}: expires on {}; create a new one, and reload",
                                              its.path, date_text(its.until))};
}

void FreeKey::operator()(EVP_PKEY* key) const noexcept { ::EVP_PKEY_free(key); }

std::unique_ptr<EVP_PKEY, FreeKey> read_private_key(const std::string& path) {
    const SecretBytes text = read_private_file(path, made_by_tls_setup);
    const std::unique_ptr<BIO, FreeKeyText> bio(
        ::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    bool encrypted = false;
    std::unique_ptr<EVP_PKEY, FreeKey> key(
        bio == nullptr ? nullptr
                       : ::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, &encrypted));
    if (key) return key;
    ::ERR_clear_error();
    throw std::runtime_error(
        fmt::format("{}: {}", path,
                    encrypted ? "is encrypted, and passphrases are not supported; decrypt it, for "
                                "example by: openssl pkey"
                              : "is not a private key in PEM"));
}

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
