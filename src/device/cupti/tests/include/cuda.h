/* What NVIDIA's cupti_activity.h needs of the CUDA toolkit's cuda.h, which the wheel of CUPTI does not have: the sizes
 * of handles and enumerations. No field that is compared here has any of these types. */
#ifndef STALLSCOPE_CUDA_H
#define STALLSCOPE_CUDA_H
#include <stddef.h>
#include <stdint.h>
typedef void *CUcontext, *CUstream, *CUgraph, *CUgraphNode, *CUgraphExec, *CUaccessPolicyWindow;
typedef int CUdevice, CUgraphNodeType, CUstreamAttrID, CUstreamAttrValue, CUdevice_attribute;
typedef struct {
  char bytes[16];
} CUuuid;
#endif
