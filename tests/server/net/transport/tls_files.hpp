// Certificates and keys for tests, created with OpenSSL in a directory that the destructor removes.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "tests/temporary_folder.hpp"

namespace gpunbd::server::test {

class TlsFiles : public gpunbd::test::TemporaryFolder {
 public:
    // Creates an authority, the certificates "server" (for localhost) and "client" (for `alice`),
    // and the file keys.psk with alice and bob.
    TlsFiles();

    // Creates NAME-cert.pem and NAME-key.pem, signed by the authority, for `common_name` and the
    // DNS names `dns`. `from` and `until` are seconds relative to now.
    struct Leaf {
        std::string common_name;
        std::string dns = {};
        long from = -3600;
        long until = 3600;
    };
    void issue(const std::string& name, const Leaf& leaf) const;
    // Creates ca-crl.pem, which revokes this certificate.
    void revoke(const std::string& name) const;
    const std::string& folder() const { return path(); }

    static constexpr const char* alices_key =
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

 private:
    struct Free {
        void operator()(X509* certificate) const { ::X509_free(certificate); }
        void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
    };
    using Key = std::unique_ptr<EVP_PKEY, Free>;
    using Certificate = std::unique_ptr<X509, Free>;

    static Key make_key();
    Certificate sign(EVP_PKEY& key, const Leaf& leaf, bool authority) const;
    void write_certificate(const std::string& name, X509& certificate) const;

    Key key_;
    Certificate authority_;
};

}  // namespace gpunbd::server::test
