// Stand-in for ncnn's net.h, layer.h, mat.h and option.h: the declarations for custom layers alone, with ncnn's names and
// signatures.  An engine is built with ncnn's own headers in their place.
#ifndef STAND_IN_NCNN_NET_H
#define STAND_IN_NCNN_NET_H

#include <stddef.h>

#include <vector>

namespace ncnn {

class Allocator;

class Mat {
public:
    Mat();
    Mat(const Mat &m);
    ~Mat();
    Mat &operator=(const Mat &m);

    void create(int w, size_t elemsize = 4u, Allocator *allocator = 0);
    void create(int w, int h, size_t elemsize = 4u, Allocator *allocator = 0);
    void create(int w, int h, int c, size_t elemsize = 4u, Allocator *allocator = 0);
    void create(int w, int h, int d, int c, size_t elemsize = 4u, Allocator *allocator = 0);
    bool empty() const;

    void *data;
    int *refcount;
    size_t elemsize;
    int elempack;
    Allocator *allocator;
    int dims;
    int w;
    int h;
    int d;
    int c;
    size_t cstep;
};

class Option {
public:
    Option();
    int num_threads;
    Allocator *blob_allocator;
    Allocator *workspace_allocator;
};

class Layer {
public:
    Layer();
    virtual ~Layer();
    virtual int create_pipeline(const Option &opt);
    virtual int destroy_pipeline(const Option &opt);

    bool one_blob_only;
    bool support_inplace;

    virtual int forward(const std::vector<Mat> &bottom_blobs, std::vector<Mat> &top_blobs, const Option &opt) const;
    virtual int forward(const Mat &bottom_blob, Mat &top_blob, const Option &opt) const;
};

typedef Layer *(*layer_creator_func)(void *);
typedef void (*layer_destroyer_func)(Layer *, void *);

class Net {
public:
    int register_custom_layer(const char *type, layer_creator_func creator, layer_destroyer_func destroyer = 0,
                              void *userdata = 0);
};

} // namespace ncnn

#endif
