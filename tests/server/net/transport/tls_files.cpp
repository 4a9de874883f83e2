#include "tests/server/net/transport/tls_files.hpp"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "tests/test.hpp"

namespace gpunbd::server::test {

namespace {

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
std::unique_ptr<std::FILE, CloseFile> open_file(const std::string& path, const char* mode) {
    std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), mode));
    REQUIRE(file != nullptr);
    return file;
}

long next_serial() {
    static std::atomic<long> serial{1};
    return serial++;
}

void extend(X509& certificate, X509& issuer, int id, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    ::X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
    X509_EXTENSION* const made = ::X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
    REQUIRE(made != nullptr);
    REQUIRE(::X509_add_ext(&certificate, made, -1) == 1);
    ::X509_EXTENSION_free(made);
}

}  // namespace

TlsFiles::TlsFiles() : key_(make_key()) {
    authority_ = sign(*key_, {.common_name = "the authority"}, true);
    write_certificate("ca-cert.pem", *authority_);
    issue("server", {.common_name = "server", .dns = "localhost"});
    issue("client", {.common_name = "alice", .dns = "alice.example"});
    write("keys.psk", std::string("alice:") + alices_key + "\nbob:" + std::string(32, 'b') + "\n");
}

TlsFiles::Key TlsFiles::make_key() {
    Key key(EVP_EC_gen("P-256"));
    REQUIRE(key != nullptr);
    return key;
}

TlsFiles::Certificate TlsFiles::sign(EVP_PKEY& key, const Leaf& leaf, bool authority) const {
    Certificate made(::X509_new());
    X509& certificate = *made;
    ::X509_set_version(&certificate, X509_VERSION_3);
    ::ASN1_INTEGER_set(::X509_get_serialNumber(&certificate), next_serial());
    ::X509_gmtime_adj(X509_getm_notBefore(&certificate), leaf.from);
    ::X509_gmtime_adj(X509_getm_notAfter(&certificate), leaf.until);
    ::X509_set_pubkey(&certificate, &key);
    ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(&certificate), "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(leaf.common_name.data()),
                                 static_cast<int>(leaf.common_name.size()), -1, 0);
    X509& issuer = authority ? certificate : *authority_;
    ::X509_set_issuer_name(&certificate, ::X509_get_subject_name(&issuer));
    if (authority) {
        extend(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
        extend(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
    }
    if (!leaf.dns.empty()) {
        extend(certificate, issuer, NID_subject_alt_name, "DNS:" + leaf.dns);
    }
    REQUIRE(::X509_sign(&certificate, key_.get(), ::EVP_sha256()) > 0);
    return made;
}

void TlsFiles::write_certificate(const std::string& name, X509& certificate) const {
    REQUIRE(::PEM_write_X509(open_file(path(name), "w").get(), &certificate) == 1);
}

void TlsFiles::issue(const std::string& name, const Leaf& leaf) const {
    const Key key = make_key();
    write_certificate(name + "-cert.pem", *sign(*key, leaf, false));
    const std::string key_path = path(name + "-key.pem");
    REQUIRE(::PEM_write_PrivateKey(open_file(key_path, "w").get(), key.get(), nullptr, nullptr, 0,
                                   nullptr, nullptr) == 1);
    REQUIRE(::chmod(key_path.c_str(), 0600) == 0);
}

void TlsFiles::revoke(const std::string& name) const {
    const Certificate revoked(
        ::PEM_read_X509(open_file(path(name + "-cert.pem"), "r").get(), nullptr, nullptr, nullptr));
    X509_CRL* const list = ::X509_CRL_new();
    ::X509_CRL_set_version(list, X509_CRL_VERSION_2);
    ::X509_CRL_set_issuer_name(list, ::X509_get_subject_name(authority_.get()));
    ASN1_TIME* const time = ::ASN1_TIME_new();
    ::X509_gmtime_adj(time, -60);
    ::X509_CRL_set1_lastUpdate(list, time);
    X509_REVOKED* const entry = ::X509_REVOKED_new();
    ::X509_REVOKED_set_serialNumber(entry, ::X509_get_serialNumber(revoked.get()));
    ::X509_REVOKED_set_revocationDate(entry, time);
    ::X509_CRL_add0_revoked(list, entry);
    ::X509_gmtime_adj(time, 3600);
    ::X509_CRL_set1_nextUpdate(list, time);
    ::ASN1_TIME_free(time);
    REQUIRE(::X509_CRL_sign(list, key_.get(), ::EVP_sha256()) > 0);
    REQUIRE(::PEM_write_X509_CRL(open_file(path("ca-crl.pem"), "w").get(), list) == 1);
    ::X509_CRL_free(list);
}

}  // namespace gpunbd::server::test
