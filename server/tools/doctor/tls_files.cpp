#include "server/tools/doctor/tls_files.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "server/net/credentials/certificate_folder.hpp"
#include "server/net/credentials/psk_keys.hpp"
#include "server/tools/tls_setup/certificates.hpp"

namespace gpunbd::server {

namespace {

constexpr int soon = expires_soon / (24 * 3600);  // days

struct FreeOfTlsFiles {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
    void operator()(GENERAL_NAMES* names) const noexcept { ::GENERAL_NAMES_free(names); }
    void operator()(X509_STORE* store) const noexcept { ::X509_STORE_free(store); }
    void operator()(X509_STORE_CTX* context) const noexcept { ::X509_STORE_CTX_free(context); }
};
template <typename T>
using OfOpenssl = std::unique_ptr<T, FreeOfTlsFiles>;

constexpr const char* make_files = "create one: gpunbd tls-setup DIR --host NAME";

Certificate read_certificate(const std::string& path) {
    const OfOpenssl<std::FILE> file(std::fopen(path.c_str(), "re"));
    if (!file) throw std::runtime_error(fmt::format("cannot be read: {}", std::strerror(errno)));
    Certificate certificate(::PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
    ::ERR_clear_error();
    if (!certificate) throw std::runtime_error("contains no PEM certificate");
    return certificate;
}

std::string address_of(const ASN1_OCTET_STRING& bytes) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const int family = ::ASN1_STRING_length(&bytes) == 4 ? AF_INET : AF_INET6;
    ::inet_ntop(family, ::ASN1_STRING_get0_data(&bytes), text.data(), text.size());
    return text.data();
}

// Only subjectAltName, because clients ignore the common name.
std::string names_in(const X509& certificate) {
    std::string out;
    const OfOpenssl<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
        ::X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
        const GENERAL_NAME& name = *sk_GENERAL_NAME_value(names.get(), i);
        const bool is_name = name.type == GEN_DNS;
        if (!is_name && name.type != GEN_IPADD) continue;
        const auto* const text = is_name ? ::ASN1_STRING_get0_data(name.d.dNSName) : nullptr;
        out += out.empty() ? "" : ", ";
        out += is_name ? reinterpret_cast<const char*>(text) : address_of(*name.d.iPAddress);
    }
    return out;
}

Diagnosis check_dates(const std::string& path, const X509& certificate) {
    int days = 0;
    int seconds = 0;
    ::ASN1_TIME_diff(&days, &seconds, nullptr, ::X509_get0_notAfter(&certificate));
    const std::string last = last_day(certificate);
    if (::X509_cmp_current_time(::X509_get0_notBefore(&certificate)) > 0) {
        return fail(path, "is not valid yet", "check the clock");
    }
    if (days < 0 || seconds < 0) return fail(path, "expired on " + last, "create a new one");
    if (days < soon) {
        return warn(path, fmt::format("expires in {} days, on {}", days, last), "create a new one");
    }
    return ok(path, "valid until " + last);
}

Diagnosis check_names(const std::string& path, const X509& certificate) {
    const std::string names = names_in(certificate);
    if (!names.empty()) return ok("names of " + path, names);
    return warn("names of " + path,
                "none; clients compare them with the name or address that they connect to",
                "create one with the server's names in subjectAltName");
}

Diagnosis check_key(const std::string& path, const X509& certificate) {
    try {
        const auto key = read_private_key(path);
        if (::X509_check_private_key(&certificate, key.get()) == 1) {
            return ok(path, "matches the certificate, and only its owner and group can read it");
        }
        ::ERR_clear_error();
        return fail(path, "belongs to another certificate",
                    "install a matching certificate and key");
    } catch (const std::runtime_error& error) {
        return fail("private key", error.what(),
                    "use a PEM file that only the server's user can read");
    }
}

// Returns the reason, or an empty text.
std::string verification_failure(X509& certificate, const std::string& authority) {
    const OfOpenssl<X509_STORE> store(::X509_STORE_new());
    const OfOpenssl<X509_STORE_CTX> check(::X509_STORE_CTX_new());
    const bool ready =
        store && check && ::X509_STORE_load_file(store.get(), authority.c_str()) == 1 &&
        ::X509_STORE_CTX_init(check.get(), store.get(), &certificate, nullptr) == 1 &&
        ::X509_STORE_CTX_set_purpose(check.get(), X509_PURPOSE_SSL_SERVER) == 1;
    const bool verified = ready && ::X509_verify_cert(check.get()) == 1;
    ::ERR_clear_error();
    if (verified) return {};
    return ready ? ::X509_verify_cert_error_string(::X509_STORE_CTX_get_error(check.get()))
                 : "the verification cannot run";
}

Diagnoses check_authority(const std::string& path, X509& certificate) {
    Diagnoses out{check_dates(path, *read_certificate(path))};
    const std::string why = verification_failure(certificate, path);
    if (why.empty()) {
        out.push_back(ok("authority", "has signed the server's certificate"));
    } else {
        out.push_back(warn(
            "authority", "has not signed the server's certificate: " + why,
            "give clients the authority that has, or create a certificate signed by this one"));
    }
    return out;
}

Diagnoses check_folder(const config::TlsOptions& tls) {
    Diagnoses out;
    std::string path = in_folder(tls.certificates, server_certificate_file);
    try {
        const Certificate certificate = read_certificate(path);
        out.push_back(check_dates(path, *certificate));
        out.push_back(check_names(path, *certificate));
        out.push_back(check_key(in_folder(tls.certificates, server_key_file), *certificate));
        path = in_folder(tls.certificates, authority_file);
        if (!tls.verify_clients) return out;
        for (Diagnosis& each : check_authority(path, *certificate)) {
            out.push_back(std::move(each));
        }
    } catch (const std::runtime_error& error) {
        out.push_back(fail(path, error.what(), make_files));
    }
    return out;
}

Diagnosis check_shared_keys(const std::string& path) {
    try {
        static_cast<void>(PskKeys::load(path));
        return ok(path, "contains shared keys, and only its owner and group can read it");
    } catch (const std::runtime_error& error) {
        return fail("shared keys", error.what(), "create one: gpunbd tls-setup DIR --psk USER");
    }
}

}  // namespace

Diagnoses check_tls_files(const config::TlsOptions& tls) {
    if (tls.mode == config::TlsMode::off) return {};
    Diagnoses out;
    if (!tls.certificates.empty()) out = check_folder(tls);
    if (!tls.psk.empty()) out.push_back(check_shared_keys(tls.psk));
    return out;
}

}  // namespace gpunbd::server
