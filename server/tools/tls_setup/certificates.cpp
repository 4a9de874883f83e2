#include "server/tools/tls_setup/certificates.hpp"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstdint>
#include <ctime>
#include <stdexcept>

#include "config/network.hpp"
#include "server/net/credentials/certificate_folder.hpp"

namespace gpunbd::server {

namespace {

constexpr long version_3 = 2;
constexpr long clock_skew = 3600;  // seconds: tolerance for clients with a slow clock
constexpr std::size_t serial_bytes = 16;
constexpr std::size_t shared_key_bytes = 32;
constexpr const char* serving = "serverAuth";
constexpr const char* using_it = "clientAuth";

struct FreeBio {
    void operator()(BIO* bio) const { BIO_free_all(bio); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;

[[noreturn]] void fail(const std::string& what) {
    const std::string reason = take_openssl_error("");
    throw std::runtime_error(reason.empty() ? what : fmt::format("{}: {}", what, reason));
}

template <class T>
T must(T result, const char* what) {
    if (!result) fail(what);
    return result;
}

Bio reader_of(const std::string& text) {
    return Bio(must(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), "no memory"));
}

template <class Write>
std::string written(Write write) {
    const Bio bio(must(BIO_new(BIO_s_secmem()), "no memory"));
    must(write(bio.get()) == 1, "OpenSSL cannot encode a key or certificate");
    char* text = nullptr;
    const long length = BIO_get_mem_data(bio.get(), &text);
    return {text, static_cast<std::size_t>(length)};
}

PrivateKey new_key() {
    return PrivateKey(must(EVP_EC_gen("P-256"), "OpenSSL cannot create a key"));
}

void add_extension(X509& to, X509& issuer, int kind, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, &issuer, &to, nullptr, nullptr, 0);
    X509_EXTENSION* const extension =
        must(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()), "a bad extension");
    const int added = X509_add_ext(&to, extension, -1);
    X509_EXTENSION_free(extension);
    must(added == 1, "no memory");
}

// Random and positive, so that no two certificates of an authority have the same.
void set_serial(X509& certificate) {
    std::array<unsigned char, serial_bytes> bytes{};
    must(RAND_bytes(bytes.data(), bytes.size()) == 1, "no random numbers are available");
    bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);
    BIGNUM* const number = must(BN_bin2bn(bytes.data(), bytes.size(), nullptr), "no memory");
    const bool set = BN_to_ASN1_INTEGER(number, X509_get_serialNumber(&certificate)) != nullptr;
    BN_free(number);
    must(set, "no memory");
}

// A certificate without extensions and signature.
Certificate blank(EVP_PKEY& key, const std::string& name, Days valid) {
    Certificate certificate(must(X509_new(), "no memory"));
    must(X509_set_version(certificate.get(), version_3) == 1, "no memory");
    set_serial(*certificate);
    must(X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -clock_skew), "no memory");
    must(X509_time_adj_ex(X509_getm_notAfter(certificate.get()), valid.count(), 0, nullptr),
         "no memory");
    must(X509_set_pubkey(certificate.get(), &key) == 1, "no memory");
    must(X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate.get()), NID_commonName,
                                    MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(name.data()),
                                    static_cast<int>(name.size()), -1, 0) == 1,
         "the name is not valid in a certificate");
    return certificate;
}

void sign(X509& certificate, EVP_PKEY& key) {
    must(X509_sign(&certificate, &key, EVP_sha256()) > 0, "OpenSSL cannot sign a certificate");
}

// Names the authority as the issuer, and limits the validity to its own.
void set_issuer(X509& certificate, X509& issuer) {
    // Clients do not accept a certificate for longer than its issuer is valid.
    if (ASN1_TIME_compare(X509_get0_notAfter(&issuer), X509_get0_notAfter(&certificate)) < 0) {
        must(X509_set1_notAfter(&certificate, X509_get0_notAfter(&issuer)) == 1, "no memory");
    }
    must(X509_set_issuer_name(&certificate, X509_get_subject_name(&issuer)) == 1, "no memory");
}

Certificate certificate_in(const std::string& text) {
    Certificate out(PEM_read_bio_X509(reader_of(text).get(), nullptr, nullptr, nullptr));
    if (out == nullptr) fail("it contains no certificate");
    return out;
}

Identity make_leaf(const Identity& authority, const std::string& name, Days valid,
                   const std::string& purpose, const std::string& names) {
    Identity leaf{.key = new_key(), .certificate = {}};
    leaf.certificate = blank(*leaf.key, name, valid);
    X509& certificate = *leaf.certificate;
    X509& issuer = *authority.certificate;
    set_issuer(certificate, issuer);
    // No keyUsage: QEMU requires keyEncipherment, which RFC 8813 forbids for these keys. Both
    // accept certificates without the extension.
    add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE");
    add_extension(certificate, issuer, NID_ext_key_usage, purpose);
    add_extension(certificate, issuer, NID_subject_key_identifier, "hash");
    add_extension(certificate, issuer, NID_authority_key_identifier, "keyid:always");
    if (!names.empty()) add_extension(certificate, issuer, NID_subject_alt_name, names);
    sign(certificate, *authority.key);
    return leaf;
}

}  // namespace

void FreeOpenSsl::operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
void FreeOpenSsl::operator()(X509* certificate) const { X509_free(certificate); }

Identity make_authority(const std::string& name, Days valid) {
    Identity authority{.key = new_key(), .certificate = {}};
    authority.certificate = blank(*authority.key, name, valid);
    X509& certificate = *authority.certificate;
    must(X509_set_issuer_name(&certificate, X509_get_subject_name(&certificate)) == 1, "no memory");
    add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
    add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
    add_extension(certificate, certificate, NID_subject_key_identifier, "hash");
    sign(certificate, *authority.key);
    return authority;
}

Identity read_authority(const std::string& certificate_pem, const std::string& key_pem) {
    Identity authority;
    authority.certificate = certificate_in(certificate_pem);
    // Keys with a password are rejected, because this program cannot prompt for it.
    const auto no_password = [](char*, int, int, void*) { return -1; };
    authority.key.reset(
        PEM_read_bio_PrivateKey(reader_of(key_pem).get(), nullptr, no_password, nullptr));
    if (authority.key == nullptr) fail("its key cannot be read");
    X509& certificate = *authority.certificate;
    if (X509_check_private_key(&certificate, authority.key.get()) != 1) {
        fail("its key belongs to another certificate");
    }
    if (X509_check_ca(&certificate) != 1) {
        throw std::runtime_error("it is not a certificate of an authority");
    }
    if (X509_cmp_current_time(X509_get0_notAfter(&certificate)) < 0) {
        throw std::runtime_error(fmt::format("it expired on {}", last_day(certificate)));
    }
    return authority;
}

Identity make_server(const Identity& authority, const std::vector<std::string>& hosts, Days valid) {
    std::string names;
    for (const std::string& host : hosts) {
        names += fmt::format("{}{}:{}", names.empty() ? "" : ",",
                             config::parse_ip(host) ? "IP" : "DNS", host);
    }
    // A common name has at most 64 characters. Programs check the other names.
    return make_leaf(authority, hosts.front().substr(0, 64), valid, serving, names);
}

Identity make_client(const Identity& authority, const std::string& name, Days valid) {
    return make_leaf(authority, name, valid, using_it, "");
}

Certificate renewed(const Identity& authority, const std::string& certificate_pem, Days valid) {
    const Certificate old = certificate_in(certificate_pem);
    if (X509_verify(old.get(), authority.key.get()) != 1) {
        take_openssl_error("");
        throw std::runtime_error("it was not signed by the authority of this folder");
    }
    EVP_PKEY* const key = must(X509_get0_pubkey(old.get()), "it has no key");
    Certificate out = blank(*key, "renewed", valid);
    must(X509_set_subject_name(out.get(), X509_get_subject_name(old.get())) == 1, "no memory");
    set_issuer(*out, *authority.certificate);
    for (int i = 0; i != X509_get_ext_count(old.get()); ++i) {
        must(X509_add_ext(out.get(), X509_get_ext(old.get(), i), -1) == 1, "no memory");
    }
    sign(*out, *authority.key);
    return out;
}

std::string pem(const X509& certificate) {
    return written([&](BIO* bio) { return PEM_write_bio_X509(bio, &certificate); });
}

std::string pem(const EVP_PKEY& key) {
    return written([&](BIO* bio) {
        return PEM_write_bio_PKCS8PrivateKey(bio, &key, nullptr, nullptr, 0, nullptr, nullptr);
    });
}

std::string last_day(const X509& certificate) {
    std::tm day{};
    must(ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &day) == 1, "a bad date");
    return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

std::string make_shared_key() {
    std::array<unsigned char, shared_key_bytes> bytes{};
    must(RAND_priv_bytes(bytes.data(), bytes.size()) == 1, "no random numbers are available");
    std::string digits;
    for (const unsigned char byte : bytes) digits += fmt::format("{:02x}", byte);
    return digits;
}

}  // namespace gpunbd::server
